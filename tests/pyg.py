"""PyG, imported while its own deprecation warnings (torch.jit) are no errors."""

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torch_geometric import nn
    from torch_geometric.data import Data, HeteroData

__all__ = ["Data", "HeteroData", "nn"]
