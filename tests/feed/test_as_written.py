"""A seed draws what it always drew, on any machine: digests that were written down once.

Another digest here means that the seeds and states of older versions give other batches. That is for the changelog.
"""

import pytest
import xxhash

from penstock import LinkNeighborLoader, NeighborLoader, generate
from penstock.feed.digest import digest_of
from tests.feed.ways import WAYS, plain_data, typed_data

DRAWN = ("n_id", "e_id", "edge_index", "edge_weight", "edge_label_index", "src_index", "dst_pos_index", "dst_neg_index")
DATA, TYPED = plain_data(), typed_data()
OF_PAPERS = dict(input_nodes=("paper", TYPED["paper"].train_mask), batch_size=40)
KNOWN = {
    "uniform": ("fc136d54071a04fe", "f39ce53df6513c6b", "b9016c7a710f5928"),
    "by weight": ("d88c395c3145818c", "cfb89e5b555ef826", "f2f055f86078e0e0"),
    "by time of nodes": ("0c0298f1ed58268d", "37e035ac42cde7ad", "19bfbfe3ce4876bb"),
    "by time of edges": ("4056f1ece3ef0cb1", "59df63d7f58a1ea6", "1ddf6ab8b1303130"),
    "the latest": ("11fe4953d818a408", "226b8ea2289e70ec", "e202d59bc48876b1"),
    "earlier": ("50f5c123182d9269", "d581e7a8363d1cd7", "ba599f157f458015"),
    "in a window": ("c03bb19e06f607ae", "7bc0bf9f7b71a5f6", "e496cf30f5a73cae"),
    "shared": ("804ca045451813b5", "2ecc52158a636a04", "aa9f508c1261ef96"),
    "walks": ("cd68509eee6351f8", "c34e1e057fdab692", "c04510239e809eed"),
    "layers": ("fe6a6fa473ae0ad9", "c495986bc72dd8b0", "dcd7dd0017f78566"),
    "numbers of nodes": ("dc2c173dd8f65841", "d67a5d91c2db2c6b", "1f0d55d6313a12e6"),
}
"""Way: digests of plain data, of typed data, and of links."""


def drawn(loader):
    """Of the nodes, edges and links of all batches."""
    state = xxhash.xxh3_64()
    for batch in loader:
        for store in batch.stores:
            state.update("".join(digest_of(store[name]) for name in DRAWN if name in store).encode())
    return state.hexdigest()


@pytest.mark.parametrize("name", WAYS)
def test_ways(name):
    way, options = WAYS[name], dict(shuffle=True, seed=5)
    plain = way.load(DATA, **options)
    typed = NeighborLoader(TYPED, **OF_PAPERS, **options, **way.of("typed"))
    links = LinkNeighborLoader(DATA, batch_size=100, neg_sampling="binary", **options, **way.of("links"))
    assert (drawn(plain), drawn(typed), drawn(links)) == KNOWN[name]


@pytest.mark.parametrize(
    ("options", "known"),
    [
        ({"replace": True}, "ff1c5c2dac8b7e84"),
        ({"disjoint": True}, "f69fa08a3ff77c92"),
        ({"subgraph_type": "induced"}, "e542edfee29e58a4"),
        ({"order": "proximity"}, "383c45790a764d67"),
        ({"order": "community"}, "a35f07450a7714db"),
    ],
    ids=str,
)
def test_options(options, known):
    assert drawn(NeighborLoader(DATA, [3, 2], batch_size=32, shuffle="order" not in options, seed=5, **options)) == known


def test_triplets():
    options = dict(neg_sampling=dict(mode="triplet", amount=2), exclude_links="self")
    assert drawn(LinkNeighborLoader(DATA, [3, 2], batch_size=100, shuffle=True, seed=5, **options)) == "c31b1b4ef27b2919"


@pytest.mark.parametrize(
    ("kind", "known"),
    [("rmat", "5de69cc3d0d50385"), ("zipf", "fd91754463b327ff"), ("communities", "3444ebb1c77e2038"), ("kronecker", "864d237bf3ce6b0e")],
)
def test_generated_graphs(kind, known, tmp_path):
    options = dict(num_nodes=500, num_edges=3000)
    if kind == "kronecker":
        options = {"base": generate("rmat", tmp_path / "base", num_nodes=100, num_edges=300)}
    assert generate(kind, tmp_path / "store", **options).digest == known
