"""The figures that the paper prints, beside which ours are put.

Shi et al., Robustness Verification for Transformers, ICLR 2020. The tables are keyed by the zoo's name of the model and
the norm. The paper's own method, "Ours" there, is `paper` here: `ours` is this library's.
"""

from __future__ import annotations

from dataclasses import dataclass

Pair = tuple[float, ...]  # minimum and average over positions, each averaged over sentences; then seconds


@dataclass(frozen=True)
class Figures:
    """A row of a printed table. Accuracy is in percent; what a table does not have is None."""

    accuracy: float | None = None
    upper: Pair | None = None
    ibp: Pair | None = None
    forward: Pair | None = None
    backward: Pair | None = None
    paper: Pair | None = None
    ratio: Pair | None = None  # of the paper's method to the upper bound, printed from figures with more digits

    def of(self, way: str) -> Pair | None:
        """The figures of a method; None where the table has none."""
        found: Pair | None = getattr(self, way, None)
        return found


MAIN = {  # "Clean accuracies and computed bounds for 1-position perturbation" (label results_main)
    ("sst_1", "l1"): Figures(
        83.2, upper=(7.418, 8.849), ibp=(2.4e-4, 2.7e-4), paper=(2.503, 2.689), ratio=(0.34, 0.30)
    ),
    ("sst_1", "l2"): Figures(
        83.2, upper=(0.560, 0.658), ibp=(2.4e-4, 2.7e-4), paper=(0.418, 0.454), ratio=(0.75, 0.69)
    ),
    ("sst_1", "linf"): Figures(
        83.2, upper=(0.091, 0.111), ibp=(2.4e-4, 2.7e-4), paper=(0.033, 0.036), ratio=(0.36, 0.32)
    ),
    ("sst_2", "l1"): Figures(
        83.5, upper=(6.781, 8.367), ibp=(3.6e-7, 3.8e-7), paper=(1.919, 1.969), ratio=(0.28, 0.24)
    ),
    ("sst_2", "l2"): Figures(
        83.5, upper=(0.520, 0.628), ibp=(3.6e-7, 3.8e-7), paper=(0.305, 0.315), ratio=(0.59, 0.50)
    ),
    ("sst_2", "linf"): Figures(
        83.5, upper=(0.085, 0.105), ibp=(3.6e-7, 3.8e-7), paper=(0.024, 0.024), ratio=(0.28, 0.23)
    ),
    ("sst_3", "l1"): Figures(
        83.9, upper=(6.475, 7.877), ibp=(5.7e-10, 6.7e-10), paper=(1.007, 1.031), ratio=(0.16, 0.13)
    ),
    ("sst_3", "l2"): Figures(
        83.9, upper=(0.497, 0.590), ibp=(5.7e-10, 6.7e-10), paper=(0.169, 0.173), ratio=(0.34, 0.29)
    ),
    ("sst_3", "linf"): Figures(
        83.9, upper=(0.084, 0.101), ibp=(5.7e-10, 6.7e-10), paper=(0.013, 0.014), ratio=(0.16, 0.13)
    ),
    ("yelp_1", "l1"): Figures(
        91.5, upper=(9.085, 13.917), ibp=(1.4e-4, 3.1e-4), paper=(1.423, 1.809), ratio=(0.16, 0.13)
    ),
    ("yelp_1", "l2"): Figures(
        91.5, upper=(0.695, 1.005), ibp=(1.4e-4, 3.1e-4), paper=(0.384, 0.483), ratio=(0.55, 0.48)
    ),
    ("yelp_1", "linf"): Figures(
        91.5, upper=(0.117, 0.155), ibp=(1.4e-4, 3.1e-4), paper=(0.034, 0.043), ratio=(0.29, 0.27)
    ),
    ("yelp_2", "l1"): Figures(
        91.5, upper=(10.228, 15.452), ibp=(1.4e-7, 2.2e-7), paper=(0.389, 0.512), ratio=(0.04, 0.03)
    ),
    ("yelp_2", "l2"): Figures(
        91.5, upper=(0.773, 1.103), ibp=(1.4e-7, 2.2e-7), paper=(0.116, 0.149), ratio=(0.15, 0.14)
    ),
    ("yelp_2", "linf"): Figures(
        91.5, upper=(0.122, 0.161), ibp=(1.4e-7, 2.2e-7), paper=(0.010, 0.013), ratio=(0.09, 0.08)
    ),
    ("yelp_3", "l1"): Figures(
        91.6, upper=(11.137, 15.041), ibp=(4.3e-10, 7.1e-10), paper=(0.152, 0.284), ratio=(0.01, 0.02)
    ),
    ("yelp_3", "l2"): Figures(
        91.6, upper=(0.826, 1.090), ibp=(4.3e-10, 7.1e-10), paper=(0.042, 0.072), ratio=(0.05, 0.07)
    ),
    ("yelp_3", "linf"): Figures(
        91.6, upper=(0.136, 0.187), ibp=(4.3e-10, 7.1e-10), paper=(0.004, 0.006), ratio=(0.03, 0.03)
    ),
}

TWO_POSITIONS = {  # "Bounds by IBP and our method for 2-position perturbation" (label results_main_2)
    ("sst_1", "l2"): Figures(ibp=(1.1e-4, 1.1e-4), paper=(0.212, 0.229)),
    ("sst_2", "l2"): Figures(ibp=(1.5e-7, 1.5e-7), paper=(0.145, 0.149)),
    ("sst_3", "l2"): Figures(ibp=(3.3e-10, 4.5e-10), paper=(0.081, 0.083)),
    ("yelp_1", "l2"): Figures(ibp=(6.5e-5, 1.2e-4), paper=(0.242, 0.290)),
    ("yelp_2", "l2"): Figures(ibp=(6.2e-8, 8.6e-8), paper=(0.060, 0.078)),
    ("yelp_3", "l2"): Figures(ibp=(2.8e-10, 4.4e-10), paper=(0.023, 0.035)),
}

ABLATION = {  # "Comparison of certified lower bounds and computation time" (label results_fb_ablation)
    ("sst_1_small", "l1"): Figures(
        83.3, forward=(1.545, 1.592, 13.7), backward=(1.891, 1.961, 177.6), paper=(1.891, 1.961, 26.5)
    ),
    ("sst_1_small", "l2"): Figures(
        83.3, forward=(0.352, 0.366, 12.6), backward=(0.419, 0.439, 178.8), paper=(0.419, 0.439, 24.3)
    ),
    ("sst_1_small", "linf"): Figures(
        83.3, forward=(0.048, 0.050, 14.6), backward=(0.058, 0.061, 181.3), paper=(0.058, 0.061, 24.3)
    ),
    ("yelp_1_small", "l1"): Figures(
        91.3, forward=(2.122, 2.173, 12.6), backward=(3.485, 3.737, 141.4), paper=(3.479, 3.729, 24.0)
    ),
    ("yelp_1_small", "l2"): Figures(
        91.3, forward=(0.576, 0.599, 12.4), backward=(0.867, 0.947, 140.4), paper=(0.866, 0.946, 26.0)
    ),
    ("yelp_1_small", "linf"): Figures(
        91.3, forward=(0.081, 0.084, 12.6), backward=(0.123, 0.136, 143.9), paper=(0.123, 0.136, 26.4)
    ),
}

LAYER_NORM = {  # models with different layer normalization settings (label results_layer_norm)
    **{
        key: Figures(row.accuracy, upper=row.upper, paper=row.paper, ratio=row.ratio)
        for key, row in MAIN.items()
        if key[0][-1] in "12"
    },
    ("sst_1_standard", "l1"): Figures(83.0, upper=(190.777, 194.961), paper=(0.008, 0.015), ratio=(4.2e-5, 7.8e-5)),
    ("sst_1_standard", "l2"): Figures(83.0, upper=(15.549, 15.630), paper=(0.006, 0.013), ratio=(4.1e-4, 8.2e-4)),
    ("sst_1_standard", "linf"): Figures(83.0, upper=(2.241, 2.504), paper=(0.001, 0.003), ratio=(5.2e-4, 1.2e-3)),
    ("sst_1_none", "l1"): Figures(83.0, upper=(6.921, 8.417), paper=(2.480, 2.659), ratio=(0.36, 0.32)),
    ("sst_1_none", "l2"): Figures(83.0, upper=(0.527, 0.628), paper=(0.411, 0.447), ratio=(0.78, 0.71)),
    ("sst_1_none", "linf"): Figures(83.0, upper=(0.089, 0.109), paper=(0.032, 0.035), ratio=(0.36, 0.32)),
    ("sst_2_standard", "l1"): Figures(82.5, upper=(191.742, 196.365), paper=(0.002, 0.004), ratio=(9.6e-6, 1.9e-5)),
    ("sst_2_standard", "l2"): Figures(82.5, upper=(15.554, 15.649), paper=(0.001, 0.003), ratio=(7.0e-5, 1.7e-4)),
    ("sst_2_standard", "linf"): Figures(82.5, upper=(2.252, 2.513), paper=(0.000, 0.000), ratio=(6.6e-5, 1.9e-4)),
    ("sst_2_none", "l1"): Figures(83.5, upper=(6.742, 8.118), paper=(1.821, 1.861), ratio=(0.27, 0.23)),
    ("sst_2_none", "l2"): Figures(83.5, upper=(0.515, 0.610), paper=(0.298, 0.306), ratio=(0.58, 0.50)),
    ("sst_2_none", "linf"): Figures(83.5, upper=(0.085, 0.103), paper=(0.023, 0.024), ratio=(0.28, 0.23)),
    ("yelp_1_standard", "l1"): Figures(91.7, upper=(189.934, 199.265), paper=(0.010, 0.022), ratio=(5.3e-5, 1.1e-4)),
    ("yelp_1_standard", "l2"): Figures(91.7, upper=(15.125, 15.384), paper=(0.008, 0.019), ratio=(5.5e-4, 1.3e-3)),
    ("yelp_1_standard", "linf"): Figures(91.7, upper=(2.001, 3.066), paper=(0.002, 0.005), ratio=(8.7e-4, 1.7e-3)),
    ("yelp_1_none", "l1"): Figures(91.4, upper=(8.044, 12.948), paper=(1.360, 1.684), ratio=(0.17, 0.13)),
    ("yelp_1_none", "l2"): Figures(91.4, upper=(0.580, 0.905), paper=(0.363, 0.447), ratio=(0.63, 0.49)),
    ("yelp_1_none", "linf"): Figures(91.4, upper=(0.086, 0.127), paper=(0.033, 0.040), ratio=(0.38, 0.32)),
    ("yelp_2_standard", "l1"): Figures(92.0, upper=(190.476, 201.092), paper=(0.002, 0.004), ratio=(1.2e-5, 1.8e-5)),
    ("yelp_2_standard", "l2"): Figures(92.0, upper=(15.277, 15.507), paper=(0.001, 0.002), ratio=(9.0e-5, 1.6e-4)),
    ("yelp_2_standard", "linf"): Figures(92.0, upper=(2.022, 2.901), paper=(0.000, 0.000), ratio=(9.5e-5, 1.3e-4)),
    ("yelp_2_none", "l1"): Figures(91.5, upper=(8.112, 15.225), paper=(0.512, 0.631), ratio=(0.06, 0.04)),
    ("yelp_2_none", "l2"): Figures(91.5, upper=(0.587, 1.042), paper=(0.123, 0.154), ratio=(0.21, 0.15)),
    ("yelp_2_none", "linf"): Figures(91.5, upper=(0.081, 0.140), paper=(0.010, 0.013), ratio=(0.13, 0.09)),
}


@dataclass(frozen=True)
class WordFigures:
    """Average importance score over 100 SST sentences, and the words of 10 Yelp sentences."""

    most: float
    least: float
    most_words: tuple[str, ...]
    least_words: tuple[str, ...]


def _words(line: str) -> tuple[str, ...]:
    return tuple(line.split())


WORDS = {  # "Average importance scores of the most/least important words" (label results_important_words)
    "grad": WordFigures(
        0.47,
        0.40,
        _words("terrible great diner best best food service food perfect best"),
        _words(". decadent . . had and place . ! ."),
    ),
    "upper": WordFigures(
        0.45,
        0.24,
        _words("terrible we . best best and slow great this best"),
        _words(". . typical boba i dark star atmosphere & boba"),
    ),
    "paper": WordFigures(
        0.57,
        0.01,
        _words("terrible great diner best best good slow great perfect best"),
        _words(". . . the . . food . . the"),
    ),
}
