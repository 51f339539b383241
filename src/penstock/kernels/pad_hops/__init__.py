"""Samples whose hops are filled up to given sizes."""
