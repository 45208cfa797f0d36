"""TextAttack's attacks beside certificates, on one model and in one table.

TextAttack changes words; a certificate is about embeddings. The two figures answer different questions, and the table
says which. Nothing of TextAttack is imported: its wrappers and attacks are used as it documents them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from .api import Certifier
from .errors import InputError, ModelError, short
from .models import Model, load
from .norms import norm_name
from .numbers import written
from .options import CertifyCall, CertifyQuestion, only
from .results import frame

if TYPE_CHECKING:
    from .models.predict import Prediction


class Wrapped:
    """A model of ours as TextAttack wants it: called with texts, it returns their logits."""

    def __init__(self, model: Any) -> None:
        self.opened = load(model)
        self.model = self.opened.module

    def __call__(self, texts: Sequence[str]) -> list[list[float]]:
        return [list(found.logits) for found in _predictions(self.opened, texts)]


@dataclass(frozen=True)
class Accuracies:
    """How many of some texts a model gets right: as they are, after an attack on words, and provably."""

    texts: int
    clean: int
    attacked: int | None  # None where no attack was given
    certified: int
    unknown: int  # right, and neither certified nor refuted
    attacker: str
    threat: str

    def rows(self) -> list[dict[str, Any]]:
        """A row for each figure: what it is, against what, how many, and the share."""
        found = [
            ("clean", "", self.clean),
            ("attacked", f"words changed by {self.attacker}", self.attacked),
            ("certified", self.threat, self.certified),
        ]
        return [
            {"accuracy": name, "against": against, "right": n, "texts": self.texts, "share": n / self.texts}
            for name, against, n in found
            if n is not None
        ]

    def to_dict(self) -> dict[str, Any]:
        """All fields as plain values."""
        return dict(vars(self))

    def to_pandas(self) -> Any:
        """The table as a pandas DataFrame."""
        return frame(self.rows())

    def __str__(self) -> str:
        rows = [(r["accuracy"], f"{r['share']:.1%}", r["right"], r["texts"], r["against"]) for r in self.rows()]
        lines = (f"{name:<10} {part:>6}  {n:>4} of {texts}  {told}" for name, part, n, texts, told in rows)
        return "\n".join(line.rstrip() for line in lines)

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"


def accuracies(wrapper: Any, examples: Iterable[Any], *, attacker: Any = None, **question: Any) -> Accuracies:
    """Clean, attacked and certified accuracy of one model on labelled texts.

    `wrapper` is TextAttack's `ModelWrapper` around a Hugging Face model and its tokenizer, or whatever `cf.load` opens;
    `examples` are pairs of a text and its label, such as a dataset of TextAttack. `attacker.attack(text, label)` is run
    on every text that is right, and what it makes of it is read by the model again. The rest is asked as with
    `cf.certify`: eps=0.05, norm=2, words=1. A text counts as certified if its own label is proved to stay.
    """
    call = CertifyCall(**question)
    pairs = [_pair(one) for one in examples]
    if not pairs:
        raise InputError("examples: expected at least one pair of a text and its label")
    model = _opened(wrapper)
    certifier = Certifier(model, call)
    clean = survived = certified = unknown = 0
    for text, label in pairs:
        if _read(wrapper, model, text) != label:
            continue
        clean += 1
        status = certifier.certify(text, **{**vars(only(CertifyQuestion, call)), "label": label}).status
        certified += status == "certified"
        unknown += status == "unknown"
        survived += attacker is None or _read(wrapper, model, _attacked(attacker, text, label)) == label
    return Accuracies(
        texts=len(pairs),
        clean=clean,
        attacked=None if attacker is None else survived,
        certified=certified,
        unknown=unknown,
        attacker="" if attacker is None else type(attacker).__name__,
        threat=_threat(call),
    )


def _threat(call: CertifyCall) -> str:
    """What is proved, in words."""
    if call.eps is None:
        return "every combination of the substitutes"
    count = call.words or 1
    moved = f"any {count} words, each" if count > 1 else "any one word"
    moved = moved if call.positions is None else f"the words {short(call.positions)}"
    return f"embeddings of {moved} moved by up to {written(call.eps)} in {norm_name(call.p)}"


def _opened(wrapper: Any) -> Model:
    """The model inside a wrapper of TextAttack, or one that opens itself."""
    if isinstance(wrapper, Wrapped):
        return wrapper.opened
    if callable(wrapper) and hasattr(wrapper, "tokenizer") and not isinstance(wrapper, Model):
        return load(wrapper.model, tokenizer=getattr(wrapper.tokenizer, "tokenizer", wrapper.tokenizer))
    return load(wrapper)


def _read(wrapper: Any, model: Model, text: str) -> int:
    """The label of a text: by the wrapper that is attacked and by the model that is certified, which must agree."""
    (ours,) = _predictions(model, [text])
    if callable(wrapper) and not isinstance(wrapper, Model):
        theirs = [float(value) for value in wrapper([text])[0]]
        if theirs.index(max(theirs)) != ours.label:
            raise ModelError(
                f"{short(text)}: the wrapper gives {[round(v, 4) for v in theirs]} and the model inside it "
                f"{[round(v, 4) for v in ours.logits]}: a certificate would be about another model than the attack"
            )
    return ours.label


def _predictions(model: Model, texts: Sequence[str]) -> tuple[Prediction, ...]:
    found = model.predict(list(texts))
    assert isinstance(found, tuple)
    return found


def _attacked(attacker: Any, text: str, label: int) -> str:
    """The text that an attack ends with; the same, where it was not changed."""
    return str(attacker.attack(text, label).perturbed_text())


def _pair(one: Any) -> tuple[str, int]:
    """A text and its label, from how TextAttack's datasets give them."""
    try:
        given, label = one
        if isinstance(given, Mapping):
            (given,) = given.values()
        if isinstance(given, str) and int(label) == label:
            return given, int(label)
    except (TypeError, ValueError):
        pass
    raise InputError(f"examples: expected pairs of one text and the number of its label, found {short(one)}")
