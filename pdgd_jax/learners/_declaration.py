"""What a learner knows and sees: declared where it is built, and shown wherever it is named.

It is no part of a `Learner`: learners of one kind share a compiled program, whatever they know.
"""

import dataclasses
import inspect
import re
from collections.abc import Callable, Collection
from typing import TypeVar

from pdgd_jax._internal.registry import nearest

__all__ = ["FEEDBACK", "KNOWLEDGE", "Declaration", "declared_by", "declares", "described_by"]

Builder = TypeVar("Builder", bound=Callable[..., object])

# What a learner may know before the first episode. "horizon" is T.
KNOWLEDGE = ("transitions", "rewards", "constraints", "rho", "horizon")
# What it sees after an episode: all rewards and constraints, those of the pairs it visited, or
# nothing.
FEEDBACK = {"full": "full information", "bandit": "bandit feedback", "none": "nothing"}

_ATTRIBUTE = "_pdgd_declaration"


@dataclasses.dataclass(frozen=True)
class Declaration:
    """What a learner knows and sees.

    Attributes:
      knows: some of `KNOWLEDGE`; None if its author did not say. The transitions are known or
        learnt; rewards and constraints are those of all episodes, or their means.
      feedback: "full" if it sees all rewards and constraints of an episode, "bandit" if it sees
        those of the pairs that it visited, "none" if it looks at neither.

    Example:
      >>> from pdgd_jax.learners import declaration_of
      >>> declaration_of("unifying").knows_in_words, declaration_of("unifying").sees_in_words
      ('transitions, rho, horizon', 'full information')
    """

    knows: tuple[str, ...] | None = None
    feedback: str = "full"

    @property
    def knows_in_words(self) -> str:
        """What it knows, for tables: "transitions, horizon"."""
        if self.knows is None:
            return "not declared"
        words, whole = list(self.knows), ("transitions", "rewards", "constraints")
        if {*whole} <= {*words}:
            words = ["the whole CMDP", *(word for word in words if word not in whole)]
        return ", ".join(words) or "nothing"

    @property
    def sees_in_words(self) -> str:
        """What it sees, for tables: "full information"."""
        return FEEDBACK[self.feedback]

    @property
    def in_words(self) -> str:
        """Both in one line: "knows: transitions, horizon; sees: full information"."""
        return f"knows: {self.knows_in_words}; sees: {self.sees_in_words}"

    @property
    def needs_margin(self) -> bool:
        """Whether it must know rho, and cannot be played where rho is not positive."""
        return "rho" in (self.knows or ())


def declares(
    *, knows: Collection[str] | None = None, feedback: str = "full"
) -> Callable[[Builder], Builder]:
    """Declare what a learner knows and sees, on top of the function that builds it.

    The command line, tables and reports show it. A learner that knows rho is refused where rho is
    not positive; if its builder has an option `rho`, `make_learner` fills it in.

    Args:
      knows: some of "transitions", "rewards", "constraints", "rho" and "horizon".
      feedback: "full", "bandit" or "none".

    Raises:
      ValueError: if a word is unknown.

    Example:
      >>> from pdgd_jax import learners
      >>> @learners.declares(knows=["transitions", "horizon"], feedback="bandit")
      ... def watchful(cmdp, num_episodes, *, step=0.1):
      ...     '''Knows where it is and sees what it pays.'''
      ...     return learners.uniform(cmdp.layers)
      >>> learners.register_learner("watchful", watchful)
      >>> learners.declaration_of("watchful").knows
      ('transitions', 'horizon')
    """
    if isinstance(knows, str):
        knows = (knows,)
    for word in knows or ():
        if word not in KNOWLEDGE:
            raise ValueError(
                f"a learner knows some of {', '.join(KNOWLEDGE)}; got {word!r}"
                f"{nearest(word, KNOWLEDGE)}."
            )
    if feedback not in FEEDBACK:
        raise ValueError(
            f"feedback must be one of {', '.join(FEEDBACK)}; got {feedback!r}"
            f"{nearest(feedback, FEEDBACK)}."
        )
    ordered = None if knows is None else tuple(word for word in KNOWLEDGE if word in knows)
    declaration = Declaration(ordered, feedback)

    def declared(builder: Builder) -> Builder:
        setattr(builder, _ATTRIBUTE, declaration)
        return builder

    return declared


def declared_by(builder: object) -> Declaration:
    """The declaration of a builder; of one that says nothing, that nobody knows what it knows."""
    found = getattr(builder, _ATTRIBUTE, None)
    return found if isinstance(found, Declaration) else Declaration()


def described_by(constructor: Callable[..., object]) -> str:
    """The docstring of a builder whose file says what the learner is, and its constructor how.

    It is that of the file, with the arguments of the constructor.
    """
    file = inspect.cleandoc(inspect.getmodule(constructor).__doc__ or "")
    own = inspect.getdoc(constructor) or ""
    section = re.search(r"^Args:\n(?:(?: +.*)?\n)*", own, re.MULTILINE)
    return f"{file}\n\n{section[0].rstrip()}" if section else file
