"""Batches of links need two things beside samples: negative links, and samples without the links to predict. And links are held out."""
