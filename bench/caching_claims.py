"""The claims of the papers on caches of features, for bench/caching_page.py: what is said, what counts as holding, why it differs."""

from __future__ import annotations

from bench.caching_figures import (
    ALL_WINDOWS,
    BY_WEIGHT,
    DEGREE_20,
    DYNAMIC,
    FIFO_NEAR,
    FIFO_SEQUENCE,
    ORACLE_20,
    RANDOM_20,
    RANDOM_SHARES,
    RATIO_20,
    Figure,
    Graphs,
    best_static,
    count,
    each,
    gained,
    hits,
    means,
    missed,
    over,
    presample_over,
    shown,
    skill,
    without,
)
from bench.caching_page import (
    BY_EDGE,
    DEEP,
    FEW,
    GATHERED,
    GINEX,
    LARGE,
    ORDERS,
    PAGRAPH,
    RECENT,
    TENTH,
    WIDE,
    WINDOWS,
    Claim,
    average,
    extremes,
    percent,
    times,
)


def pagraph(graphs: Graphs) -> str:
    """Why the optimum differs."""
    return f"""
        How close degree comes to the best static content: {extremes(graphs, over(DEGREE_20, ORACLE_20), times)}. How good that is
        depends on
        the skew of the graph: the oracle hits {extremes(graphs, ORACLE_20, percent)}. With 65% of the nodes to train on, many reads
        are of the
        seeds themselves, {extremes(graphs, lambda graph: graph.seeds_share(PAGRAPH), percent)}, each once per epoch, which no ranking
        tells
        apart; and a batch asks for a hot row once, however many of its seeds lead there (see the size of the batch)."""


def aligraph(graphs: Graphs) -> str:
    """What the ratio ranks by."""
    return f"""
        Degree hits {extremes(graphs, over(DEGREE_20, RATIO_20), times)} as often as the ratio, and the ratio
        {extremes(graphs, over(RATIO_20, RANDOM_20), times)} as often as random. Where the reverse of every edge is stored the ratio is
        1 for
        all nodes and says nothing. It was made for neighbour lists, where a long list costs more; a feature row costs the same for
        all."""


def oracle_noise(graphs: Graphs) -> str:
    """Why presampling is below the oracle."""

    def near(setting: str) -> str:
        return f"{count(graphs, lambda graph: presample_over('oracle')(setting)(graph) >= 0.95)} ({setting})"

    return f"""
        Mean over graphs: {means(graphs, RANDOM_SHARES, presample_over("oracle"), times)}; by itself each setting holds on
        {", ".join(map(near, RANDOM_SHARES))}. The oracle ranks by the very visits that are measured, their noise included, presampling
        by those
        of another epoch. How much noise there is shows in how alike two epochs are:
        {means(graphs, RANDOM_SHARES, lambda name: lambda graph: graph.order(name)["similarity"], percent)}. With few batches per epoch
        most
        nodes are read once or twice and differ by luck, which no policy can know in advance; the papers' graphs have many more train
        nodes."""


def deep(graphs: Graphs) -> str:
    """When degree suffices."""
    settings = (*RANDOM_SHARES, GATHERED)
    return f"""
        Mean over graphs: {means(graphs, settings, presample_over("degree"), times)}. With train nodes at random, rank correlation of
        degree with
        visits is {extremes(graphs, lambda graph: graph.correlation(DEEP), "{:.2f}".format)}: three hops with wide fanouts lead to
        nodes of high
        out-degree wherever they begin. With as many train nodes gathered in one place, as those of papers100M are in one field of
        science, it is
        {extremes(graphs, lambda graph: graph.correlation(GATHERED), "{:.2f}".format)}, and presampling hits
        {extremes(graphs, presample_over("degree")(GATHERED), times)} as often as degree: 1.5x or more on
        {count(graphs, lambda graph: presample_over("degree")(GATHERED)(graph) >= 1.5)}. With 5% kept it hits
        {extremes(graphs, hits("presample", GATHERED, "5%"), percent)} there, degree
        {extremes(graphs, hits("degree", GATHERED, "5%"), percent)}."""


def weighted(graphs: Graphs) -> str:
    """What a second epoch brings."""

    def near(policy: str) -> str:
        return means(graphs, BY_WEIGHT, lambda setting: over(hits(policy, setting), hits("oracle", setting)), times)

    return f"""
        Mean over graphs: one epoch {near("presample")}; two epochs {near("presample-2")}. What is missing is the noise of few batches
        per epoch, as above: the second epoch halves its variance. How alike two epochs are:
        {means(graphs, (DEEP, *BY_WEIGHT), lambda name: lambda graph: graph.order(name)["similarity"], percent)}."""


def weighted_degree(graphs: Graphs) -> str:
    """Which weights degree does not know of."""

    def share(setting: str) -> Figure:
        return over(hits("degree", setting), hits("oracle", setting))

    return f"""
        Degree's own hits change little ({means(graphs, (DEEP, RECENT), lambda setting: hits("degree", setting), percent)}, mean over
        graphs); what can be had rises, for fewer nodes are read: the oracle's are
        {means(graphs, (DEEP, RECENT), lambda setting: hits("oracle", setting), percent)}. Degree's over the oracle's:
        {means(graphs, (DEEP, *BY_WEIGHT), share, times)}. Presampling with two epochs
        hits {means(graphs, BY_WEIGHT, lambda setting: over(hits("presample-2", setting), hits("degree", setting)), times)} as often as
        degree. It is not the skew of the weights that makes degree fail but whom they favour: by a power law of each edge by itself the
        reads of a node are still about in proportion to its out-degree; by the recency of the source they are not. Rank correlation of
        degree with visits: {means(graphs, (DEEP, *BY_WEIGHT), lambda name: lambda graph: graph.correlation(name), "{:.2f}".format)}."""


def few(graphs: Graphs) -> str:
    """What few train nodes change."""
    return f"""
        With 1% train nodes {extremes(graphs, lambda graph: graph.order(FEW)["visited_share"], percent)} of the nodes are ever read;
        presampling
        gains {extremes(graphs, skill("presample", FEW), percent)} of what the oracle gains, degree
        {extremes(graphs, skill("degree", FEW), percent)}. Where little is read, the hot nodes are those near a train node, and degree
        does not
        know which those are. Train nodes are a random share here; for gathered ones
        see the claim before."""


def fifo(graphs: Graphs) -> str:
    """The other dynamic policies."""
    names = ("degree", "fifo", *DYNAMIC)
    return f"""
        Mean over graphs: {means(graphs, names, missed, percent)}. FIFO evicts what is hot as often as what is not. S3-FIFO, which lets
        a row
        into its main queue only when it is asked for again, misses fewer rows than FIFO on
        {count(graphs, lambda graph: missed("s3-fifo")(graph) < missed("fifo")(graph))} and fewer than degree on
        {count(graphs, lambda graph: missed("s3-fifo")(graph) < missed("degree")(graph))}; it needs to know neither graph nor train
        nodes. LFU and
        SIEVE miss the very same number of rows on {count(graphs, lambda graph: missed("lfu")(graph) == missed("sieve")(graph))}. Both
        freeze:
        rows that were hit stay, the room for new ones shrinks below the misses of one batch, and as no batch asks for a row twice, no
        new row
        is ever hit before it leaves. What is frozen is a static cache of the rows first asked for twice, near degree in random order, and
        no help where the order moves through the graph: {percent(average(graphs, missed("sieve")))} in random,
        {percent(average(graphs, missed("sieve", order="proximity")))} in proximity order on average."""


def proximity(graphs: Graphs) -> str:
    """Where nearness comes from."""
    return f"""
        In one sequence FIFO misses fewer rows than static caches of the same order on
        {count(graphs, lambda graph: FIFO_SEQUENCE(graph) < best_static("one-sequence")(graph))}: that is the most that nearness can do
        with
        these seeds and fanouts. A sequence per seed of the batch, which the order takes where there are no labels, keeps batches as
        mixed as
        random ones, and only the nearness of batches that follow each other remains. Graphs made by a power law at random have no near
        seeds to
        put together: two hops lead everywhere."""


def belady(graphs: Graphs) -> str:
    """How far."""
    sizes = [over(missed("belady all", GINEX, size), missed("degree", GINEX, size)) for size in ("10%", "20%")]
    return f"""
        Belady's misses are {extremes(graphs, sizes[0], times)} of degree's with 10% kept, {extremes(graphs, sizes[1], times)} with
        20%, and fewer
        than the best static cache's on
        {count(graphs, lambda graph: missed("belady all", GINEX)(graph) < missed("oracle", GINEX)(graph))}."""


def windows(graphs: Graphs) -> str:
    """What makes a window long."""
    return f"""
        Mean over graphs, fanouts 10,10: {means(graphs, WINDOWS, gained, percent)}. Whether a window is long depends on how many
        batches it takes
        to fill the cache (last column): once it covers several times that number, nearly everything is gained."""


def superbatches(graphs: Graphs) -> str:
    """Why sliding is better."""
    return f"""
        Mean over graphs: {means(graphs, WINDOWS[1:], without("superbatch"), times)}. Towards the end of a superbatch nothing is known
        of the
        next one; the sliding window always knows as much."""


def tie_break(graphs: Graphs) -> str:
    """Where it matters."""
    return f"""
        Mean over graphs: {means(graphs, ALL_WINDOWS, without("belady-plain"), times)}. It matters as long as the window says nothing
        of most
        rows, and lets a window of one batch do about as well as a static cache."""


def batch_size(graphs: Graphs) -> str:
    """Why it matters."""
    return f"""
        Mean hit rate of degree: {means(graphs, (TENTH, LARGE), lambda setting: hits("degree", setting), percent)}. A hot row is asked
        for once per
        batch, however many seeds lead to it: large batches ask for fewer rows, and those saved are the hot ones. A batch that asks for
        more
        rows than the cache has bounds every policy (last column). So hit rates of different batch sizes, or of one batch size on
        graphs of
        different sizes, say little of policies."""


def skew(graphs: Graphs) -> str:
    """What repeats."""
    return f"""
        98% of the reads of lists go to {extremes(graphs, lambda graph: graph.order(DEEP)["list_bytes_needed"]["0.98"], percent)} of their
        bytes. Epochs are the more alike, the more batches they have: visits of a hot node vary less against their mean."""


CLAIMS = [
    Claim(
        "PaGraph: a fifth of the nodes by degree gives over half of the hits",
        """Paper (Fig. 13, livejournal, fanouts 2,2, 65% train nodes): over 50% hits with 20% cached, very close to the optimum, over
        twice the
        other policies. Holds here: over 50%, at least 90% of the oracle's, over twice random's.""",
        {
            "degree": shown(DEGREE_20, percent), "oracle": shown(ORACLE_20, percent), "random": shown(RANDOM_20, percent),
            "degree / oracle": shown(over(DEGREE_20, ORACLE_20), times), "degree / random": shown(over(DEGREE_20, RANDOM_20), times),
            "rank correlation of degree and visits": shown(lambda graph: graph.correlation(PAGRAPH), "{:.2f}".format),
        },
        lambda graph: (
            DEGREE_20(graph) > 0.5 and over(DEGREE_20, ORACLE_20)(graph) >= 0.9 and over(DEGREE_20, RANDOM_20)(graph) > 2
        ),
        pagraph,
    ),
    Claim(
        "AliGraph: the ratio of out- to in-neighbours",
        "Paper (PaGraph Fig. 13): degree hits over twice as often as the ratio, with 20% cached. Holds here: over twice.",
        {
            "ratio": shown(RATIO_20, percent), "degree": shown(DEGREE_20, percent),
            "degree / ratio": shown(over(DEGREE_20, RATIO_20), times), "ratio / random": shown(over(RATIO_20, RANDOM_20), times),
        },
        lambda graph: over(DEGREE_20, RATIO_20)(graph) > 2,
        aligraph,
    ),
    Claim(
        "GNNLab: presampling is within a few percent of the best static cache",
        """Paper (Fig. 16): PreSC within a few percent of the optimum on 4 graphs and 3 samplers with 10% cached. Holds here: at least
        95% of the
        oracle's hit rate with 10% kept, in all of these settings. One presampled epoch (PreSC#1).""",
        each(RANDOM_SHARES, presample_over("oracle"), times),
        lambda graph: all(presample_over("oracle")(name)(graph) >= 0.95 for name in RANDOM_SHARES),
        oracle_noise,
    ),
    Claim(
        "GNNLab: presampling gives 1.5 times the hits of degree",
        """Paper (Fig. 15, 16): 1.5x on average with 10% cached, up to 2.2x, alike on a power-law graph; on papers100M with 5% cached 96%
        against degree's 29%. Holds here: 1.5x or more in the setting most like theirs (15,10,5 of 1%).""",
        {
            **each(RANDOM_SHARES, presample_over("degree"), times),
            GATHERED: shown(presample_over("degree")(GATHERED), times),
            "presample hits, 15,10,5 of 1%": shown(hits("presample", DEEP), percent),
            "gathered": shown(hits("presample", GATHERED), percent),
            "read at all, gathered": shown(lambda graph: graph.order(GATHERED)["visited_share"], percent),
        },
        lambda graph: presample_over("degree")(DEEP)(graph) >= 1.5,
        deep,
    ),
    Claim(
        "GNNLab: degree fails where train nodes are few",
        """Paper: degree assumes that sampling starts everywhere (papers100M has 1.1% train nodes). Holds here: what degree gains over
        a random
        choice, as a share of what the oracle gains over it, falls by a tenth or more from 65% train nodes to 1% (fanouts 10,10, 10%
        kept).""",
        {
            **each((WIDE, TENTH, FEW), lambda name: skill("degree", name), percent, "degree's share, {}"),
            "presample's share, 10,10 of 1%": shown(skill("presample", FEW), percent),
            "read at all, 10,10 of 1%": shown(lambda graph: graph.order(FEW)["visited_share"], percent),
        },
        lambda graph: skill("degree", FEW)(graph) <= 0.9 * skill("degree", WIDE)(graph),
        few,
    ),
    Claim(
        "GNNLab: presampling holds under weighted sampling",
        """Paper (Fig. 15a, 16): with weighted sampling too PreSC is near the optimum, with 10% cached; PreSC#1 and #2 (one and two epochs
        sampled) are about the same. Weights here: by the recency of the source (the n nodes came in a random order, the k-th last has
        weight n / k), and of each edge by itself (1 / u, u uniform). Holds here: PreSC#2 has at least 95% of the oracle's hit rate in all
        three.""",
        {
            **each(BY_WEIGHT, lambda name: over(hits("presample", name), hits("oracle", name)), times, "#1 / oracle, {}"),
            **each(BY_WEIGHT, lambda name: over(hits("presample-2", name), hits("oracle", name)), times, "#2 / oracle, {}"),
            "oracle hits, by recency": shown(hits("oracle", RECENT), percent),
        },
        lambda graph: all(over(hits("presample-2", name), hits("oracle", name))(graph) >= 0.95 for name in BY_WEIGHT),
        weighted,
    ),
    Claim(
        "GNNLab: degree fails under weighted sampling",
        """Paper (Fig. 16): with weighted sampling the hit rate of degree drops very quickly, below 51% on average, also on a power-law
        graph where it does well with uniform sampling. Holds here: by recency degree has a smaller share of the oracle's hits than
        uniformly, by a tenth or more (15,10,5 of 1%).""",
        {
            "degree, uniform": shown(hits("degree", DEEP), percent),
            "by recency": shown(hits("degree", RECENT), percent),
            "by edge": shown(hits("degree", BY_EDGE), percent),
            "degree / oracle, uniform": shown(over(hits("degree", DEEP), hits("oracle", DEEP)), times),
            "/ oracle, by recency": shown(over(hits("degree", RECENT), hits("oracle", RECENT)), times),
            "/ oracle, by edge": shown(over(hits("degree", BY_EDGE), hits("oracle", BY_EDGE)), times),
            "#1 hits, by recency": shown(hits("presample", RECENT), percent),
            "#2 hits, by recency": shown(hits("presample-2", RECENT), percent),
        },
        lambda graph: (
            over(hits("degree", RECENT), hits("oracle", RECENT))(graph)
            <= 0.9 * over(hits("degree", DEEP), hits("oracle", DEEP))(graph)
        ),
        weighted_degree,
    ),
    Claim(
        "BGL: FIFO alone is worse than static by degree",
        """Paper (Fig. 5b, papers100M, 10% cached): lower than static, which hits under 40% (2.3). Holds here: FIFO misses more rows
        than degree
        in random order. Rows missed, as a share of the rows asked for:""",
        each(("degree", "presample", "oracle", "fifo", *DYNAMIC), missed, percent),
        lambda graph: missed("fifo")(graph) > missed("degree")(graph),
        fifo,
    ),
    Claim(
        "BGL: FIFO in proximity order is better than everything static",
        """Paper (Fig. 5b, 10% cached): the highest hit rate of all. An order changes what a batch asks for, so rows missed are
        compared, as a
        share of what the random order asks for. Holds here: FIFO in proximity order misses fewer than degree and presampling, in
        either order.
        *one sequence* is a bound: breadth-first order without mixing, which is not fit for training.""",
        {
            "asked, proximity": shown(lambda graph: graph.asked(ORDERS, "proximity"), percent),
            "static, random order": shown(best_static("random"), percent),
            "static, proximity": shown(best_static("proximity"), percent),
            "fifo, random order": shown(missed("fifo"), percent),
            "fifo, proximity": shown(FIFO_NEAR, percent),
            "asked, one sequence": shown(lambda graph: graph.asked(ORDERS, "one-sequence"), percent),
            "static, one sequence": shown(best_static("one-sequence"), percent),
            "fifo, one sequence": shown(FIFO_SEQUENCE, percent),
        },
        lambda graph: FIFO_NEAR(graph) < min(best_static("random")(graph), best_static("proximity")(graph)),
        proximity,
    ),
    Claim(
        "Ginex: Belady misses far less than degree",
        """Paper (Fig. 5, 15): far below PaGraph's miss ratio at every cache size, under 8% at its best. Holds here: at most three
        quarters of
        degree's misses with 10% and with 20% kept, all batches known. Rows missed, as a share of the rows asked for, fanouts
        10,10,10:""",
        {
            f"{name}, {size}": shown(missed(name, GINEX, size), percent)
            for size in ("10%", "20%")
            for name in ("degree", "oracle", "belady all")
        },
        lambda graph: all(over(missed("belady all", GINEX, size), missed("degree", GINEX, size))(graph) <= 0.75 for size in ("10%", "20%")),
        belady,
    ),
    Claim(
        "How far to look ahead",
        """Share of what full knowledge gains over a presampled static cache that a sliding window of so many batches gains, 10% kept
        (0%: no
        better than static).""",
        {
            **each(WINDOWS, gained, percent, "{}, fanouts 10,10"),
            **each(WINDOWS, lambda window: gained(window, GINEX), percent, "{}, fanouts 10,10,10"),
            "batches that fill the cache, 10,10": shown(lambda graph: 0.1 / graph.asked_share(ORDERS), "{:.1f}".format),
            "10,10,10": shown(lambda graph: 0.1 / graph.asked_share(GINEX), "{:.1f}".format),
        },
        None,
        windows,
    ),
    Claim(
        "A sliding window misses less than Ginex' superbatches",
        """Rows missed by superbatches of so many batches (all announced, all used up, then the next) over those missed by a window of
        the same
        length that slides by one batch; 10% kept, fanouts 10,10. Ours against theirs. Holds: sliding never misses more.""",
        each(WINDOWS[1:], without("superbatch"), times),
        lambda graph: all(without("superbatch")(window)(graph) >= 1 for window in WINDOWS[1:]),
        superbatches,
    ),
    Claim(
        "Hotness as a tie-break helps Belady",
        """Rows missed without it (those not needed within the window leave in the order in which they were last valued) over those
        missed with
        it; 10% kept, fanouts 10,10. Not in the papers. Holds: it never misses more, to 0.1%.""",
        each(ALL_WINDOWS, without("belady-plain"), times),
        lambda graph: all(without("belady-plain")(window)(graph) >= 0.999 for window in ALL_WINDOWS),
        tie_break,
    ),
    Claim(
        "Size of the batch",
        "Degree with 10% kept, fanouts 10,10, 10% train nodes, in batches of 64 and of 1,024 seeds. Not in the papers.",
        {
            "a batch asks for, 64": shown(lambda graph: graph.asked_share(TENTH), percent),
            "1,024": shown(lambda graph: graph.asked_share(LARGE), percent),
            "degree hits, 64": shown(hits("degree", TENTH), percent),
            "1,024 seeds": shown(hits("degree", LARGE), percent),
            "at most, 1,024": shown(lambda graph: graph.ceiling(LARGE), percent),
        },
        None,
        batch_size,
    ),
    Claim(
        "Skew and repetition",
        """Papers: 98% of the reads of lists go to 5.4% of their bytes (DUCATI, papers100M); two epochs are 74% to 91% alike (GNNLab,
        Table IV,
        3-hop; no formula is given: ours is the sum of min(f1, f2) over the common hottest tenth, over the mean of the sums over each);
        32.4% of
        the nodes read are read repeatedly, up to 519 times (PaGraph Fig. 5, wiki-talk).""",
        {
            "list bytes for 98% of reads, 15,10,5 of 1%": shown(lambda graph: graph.order(DEEP)["list_bytes_needed"]["0.98"], percent),
            "rows for 98%": shown(lambda graph: graph.order(DEEP)["rows_needed"]["0.98"], percent),
            "epochs alike, 15,10,5 of 1%": shown(lambda graph: graph.order(DEEP)["similarity"], percent),
            "epochs alike, 10,10 of 65%": shown(lambda graph: graph.order(WIDE)["similarity"], percent),
            "read more than once, 2,2 of 65%": shown(lambda graph: graph.order(PAGRAPH)["visited_more_than_once_share"], percent),
            "most reads": shown(lambda graph: graph.order(PAGRAPH)["most_visits"], "{:,}".format),
        },
        None,
        skew,
    ),
]  # fmt: skip
