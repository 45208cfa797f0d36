"""What a classifier is made of and how it is trained: every setting once, with its help. Nothing here needs torch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, TypeVar, get_args

from .core.names import one_of, option, whole
from .errors import InputError, ModelError

Activation = Literal["relu", "gelu"]
LayerNormKind = Literal["no_var", "standard", "none"]
TrainingPrecision = Literal["float32", "bfloat16"]
MovedNorm = Literal["1", "2", "inf"]
MovedParts = Literal["sum", "logs"]
LAYER_NORMS: tuple[LayerNormKind, ...] = get_args(LayerNormKind)
SHORT_NAMES = {  # of flags whose fields are called as in Hugging Face's configurations
    "num_hidden_layers": "--layers",
    "hidden_size": "--hidden",
    "intermediate_size": "--feed-forward",
    "num_attention_heads": "--heads",
    "max_position_embeddings": "--max-length",
}
ACTIVATIONS: tuple[Activation, ...] = get_args(Activation)


R = TypeVar("R", bound="Recipe")


@dataclass(frozen=True)
class Config:
    """The shape of a classifier. Field names are Hugging Face's; `layer_norm` is ours."""

    num_hidden_layers: int = option(1, "Number of Transformer layers.")
    vocab_size: int = option(15_000, "Most words to keep.")
    hidden_size: int = option(256, "Width of the embeddings.")
    intermediate_size: int = option(0, "Width of the feed-forward layers; 0 is twice the width of the embeddings.")
    num_attention_heads: int = option(4, "Attention heads.")
    hidden_act: Activation = option("relu", "Activation of the feed-forward layers.")
    layer_norm: LayerNormKind = option("no_var", "no_var leaves out the division by the standard deviation.")
    layer_norm_eps: float = 1e-12
    max_position_embeddings: int = option(128, "Longest text in tokens, with [CLS] and [SEP].")
    type_vocab_size: int = 2
    num_labels: int = 2
    dropout: float = option(0.2, "Dropout.")
    labels: tuple[str, ...] = ("negative", "positive")

    def __post_init__(self) -> None:
        if self.intermediate_size == 0 and isinstance(self.hidden_size, int):
            object.__setattr__(self, "intermediate_size", 2 * self.hidden_size)
        counts = {
            "num_hidden_layers": (self.num_hidden_layers, 1, 1024),
            "vocab_size": (self.vocab_size, 1, 10**7),
            "hidden_size": (self.hidden_size, 1, 10**5),
            "intermediate_size": (self.intermediate_size, 1, 10**6),
            "num_attention_heads": (self.num_attention_heads, 1, 10**5),
            "max_position_embeddings": (self.max_position_embeddings, 2, 10**6),
            "type_vocab_size": (self.type_vocab_size, 1, 10**4),
            "num_labels": (self.num_labels, 2, 10**5),
        }
        for name, (value, low, high) in counts.items():
            if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
                raise ModelError(f"{name} must be a whole number from {low} to {high}, found {value!r}")
        if self.hidden_size % self.num_attention_heads:
            raise ModelError(
                f"hidden_size must be a multiple of num_attention_heads, found {self.hidden_size} and "
                f"{self.num_attention_heads}"
            )
        if self.hidden_act not in ACTIVATIONS:
            raise ModelError(f"hidden_act must be one of {', '.join(ACTIVATIONS)}, found {self.hidden_act!r}")
        if self.layer_norm not in LAYER_NORMS:
            raise ModelError(f"layer_norm must be one of {', '.join(LAYER_NORMS)}, found {self.layer_norm!r}")
        for name, number, bound in (("layer_norm_eps", self.layer_norm_eps, 1.0), ("dropout", self.dropout, 1.0)):
            if isinstance(number, bool) or not isinstance(number, (int, float)) or not 0 <= number < bound:
                raise ModelError(f"{name} must be a number from 0 to below {bound:g}, found {number!r}")
        if len(self.labels) != self.num_labels:
            raise ModelError(f"num_labels is {self.num_labels} but {len(self.labels)} label names were given")


@dataclass(frozen=True)
class Recipe:
    """How to train.

    `score_penalty` weighs the mean square of the attention scores; `embedding_noise` is the standard deviation of
    Gaussian noise on the raw embeddings; `adversarial` is the l2 length of a gradient step on each word's embedding,
    trained on beside the clean text (it grows from 0 over the first half of the training, and weights from before that
    are not kept as the best); `word_dropout` is the share of words shown as [UNK]. `certify` weighs the movement of
    scores and LayerNorm inputs in the worst direction of a word (`training.movement`); it rises from a quarter of the
    training to three quarters, and is halved when the accuracy on dev stays too far below what it was without.
    `centring` keeps the mean embedding of each place small with it (`training.centring`). `bound` weighs what is proved
    of short texts (`training.CertifiedMargin`), and rises with it. With `synonyms` the loss of the worst substitutes,
    all words at once, is trained; they go from the word itself to themselves in the first part of the training, and the
    last weights are kept. `synonyms_shown` is the share of words in whose place a substitute is shown, and
    `synonyms_tied` lets words and substitutes share one embedding where a linear model gives them nearly the same value
    (`training.tying`).
    """

    epochs: int = option(0, "Passes over the training part; 0: enough for 1,000 steps, 2,000 with --certify.")
    batch_size: int = option(128, "Texts a step.")
    learning_rate: float = option(2e-4, "Highest learning rate.")
    weight_decay: float = option(0.1, "Weight decay of the matrices.")
    warmup: float = option(0.1, "Share of the steps over which the learning rate rises.")
    clip: float = option(1.0, "Largest norm of a gradient.")
    seed: int = option(0, "Seed of all randomness.")
    evaluations: int = option(2, "Evaluations an epoch; each also writes the checkpoint.")
    precision: TrainingPrecision = option("float32", "Number format of the training.")
    label_smoothing: float = option(0.0, "Share of the loss that goes to the other labels.")
    score_penalty: float = option(0.05, "Weight of the penalty on large attention scores.")
    embedding_noise: float = option(0.0, "Gaussian noise on the embeddings.")
    adversarial: float = option(0.0, "Length of a gradient step on each word to train on too.")
    word_dropout: float = option(0.3, "Share of words shown as unknown.")
    averaging: float = option(0.999, "Decay of the running average of the weights that is kept; 0 keeps the last ones.")
    certify: float = option(0.0, "Weight of the penalty that makes a model certifiable; 0.01 to 1 is usual.")
    certify_norm: MovedNorm = option("2", "Norm in which words move in that penalty.")
    certify_words: int = option(1, "Words of a text that move together in that penalty.")
    certify_parts: MovedParts = option("sum", "How that penalty adds up what moves: the sum, or that of logarithms.")
    centring: float = option(0.0, "Share of the mean embedding of a place that each step takes away, with --certify.")
    bound: float = option(0.0, "Weight of the certified margin of short texts as a loss of its own; slow.")
    bound_radius: float = option(0.1, "Radius of that margin, over the length of the word's embedding.")
    bound_words: int = option(8, "Longest text, in words, of which that margin is trained.")
    synonyms: str | None = option(None, "JSON file, word -> substitutes: trains the answer to stay when they are used.")
    synonyms_weight: float = option(
        0.8, "Weight of the loss under the worst substitutes; the rest is that of the texts as they are."
    )
    synonyms_shown: float = option(0.0, "Share of words that are shown as one of their substitutes, drawn at random.")
    synonyms_tied: float = option(
        0.0, "Words that say the same, up to this, are one to the model along the lists; 0.1 to 0.3 is usual."
    )
    allowed_loss: float = option(0.02, "Accuracy on dev that the penalty may cost before it is halved.")
    start: str | None = option(None, "Folder of a trained model of the same shape to go on from.")

    def __post_init__(self) -> None:
        whole("epochs", self.epochs, least=0)
        for name in ("batch_size", "evaluations", "certify_words", "bound_words"):
            whole(name, getattr(self, name), least=1)
        for name in ("learning_rate", "clip"):
            if not 0 < getattr(self, name) < float("inf"):
                raise InputError(f"{name}={getattr(self, name)!r}: expected a positive number")
        if not 0 <= self.synonyms_weight <= 1:
            raise InputError(f"synonyms_weight={self.synonyms_weight!r}: expected a number from 0 to 1")
        others = self.synonyms_shown, self.synonyms_tied
        if self.synonyms is None and any(others):
            raise InputError(f"synonyms_shown, synonyms_tied={others}: expected a file of synonyms with them")
        if self.synonyms is not None and not (self.synonyms_weight or any(others)):
            raise InputError(
                "synonyms_weight=0: nothing is trained for synonyms without synonyms_shown or synonyms_tied"
            )
        shares = "warmup word_dropout label_smoothing averaging allowed_loss synonyms_shown centring"
        for name in shares.split():
            if not 0 <= getattr(self, name) < 1:
                raise InputError(f"{name}={getattr(self, name)!r}: expected a number from 0 to below 1")
        for name in (
            "weight_decay",
            "score_penalty",
            "embedding_noise",
            "adversarial",
            "certify",
            "bound",
            "bound_radius",
            "synonyms_tied",
        ):
            if not 0 <= getattr(self, name) < float("inf"):
                raise InputError(f"{name}={getattr(self, name)!r}: expected a number of 0 or more")
        one_of("precision", self.precision, get_args(TrainingPrecision))
        one_of("certify_norm", self.certify_norm, get_args(MovedNorm))
        one_of("certify_parts", self.certify_parts, get_args(MovedParts))


def with_epochs(recipe: R, texts: int) -> R:
    """A recipe that says how many passes it takes over so many texts: where it left that open, as many as make about a
    thousand steps, and two thousand where there is more to learn than the answer; 2 at least and 50 at most."""
    if recipe.epochs:
        return recipe
    steps = 2000 if recipe.certify or recipe.bound or recipe.synonyms else 1000
    return replace(recipe, epochs=min(50, max(2, round(steps * recipe.batch_size / max(1, texts)))))


@dataclass(frozen=True)
class FineTuning(Recipe):
    """How to train a model on that is trained already."""

    epochs: int = option(3, "Passes over the training part.")
    batch_size: int = option(32, "Texts a step.")
    learning_rate: float = option(5e-5, "Highest learning rate.")
    weight_decay: float = option(0.01, "Weight decay of the matrices.")
    word_dropout: float = option(0.0, "Share of words shown as unknown.")
    score_penalty: float = option(0.0, "Weight of the penalty on large attention scores.")
    averaging: float = option(0.0, "Decay of the running average of the weights that is kept; 0 keeps the last ones.")
    certify_parts: MovedParts = option("logs", "How that penalty adds up what moves: the sum, or that of logarithms.")
    train_texts: int = option(0, "Training texts to take, drawn at random by the seed; 0 takes all.")

    def __post_init__(self) -> None:
        super().__post_init__()
        whole("train_texts", self.train_texts, least=0)
