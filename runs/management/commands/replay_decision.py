"""`manage.py replay_decision`: what a pass saw, put through the engine again, must give the answer it gave then."""

import json
from argparse import ArgumentParser
from dataclasses import dataclass
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from placement import Placement, words
from placement.record import answer_digest
from runs.models import DecisionRecord
from runs.scheduling.records import Answer, recall_decision


@dataclass(frozen=True, slots=True)
class Replay:
    """A kept judgement and its repetition."""

    decision: DecisionRecord
    answer: Answer
    digest: str

    @property
    def same(self) -> bool:
        return self.digest == self.decision.digest

    @property
    def text(self) -> str:
        data = self.answer.as_data()
        if isinstance(self.answer, Placement):
            verb = "Placed on" if self.decision.placed else "There was room on"
            return f"{verb} {words.placement_sentence(data)}."
        return words.headline(data)

    def lines(self) -> list[str]:
        decision = self.decision
        head = (
            f"Record {decision.id}: {decision.run.name}, {decision.at:%Y-%m-%d %H:%M:%S} UTC, "
            f"pass {decision.record.pass_no:,}, step {decision.step}"
        )
        if self.same:
            return [head, self.text, "Same answer."]
        was = "a placement" if decision.placed else "a refusal, or a wait in spite of room"
        return [
            head,
            self.text,
            "Another answer: this engine does not judge as the one that wrote the record.",
            f"  then  {was}, digest {decision.digest}",
            f"  now   {self._kind}, digest {self.digest}",
        ]

    @property
    def _kind(self) -> str:
        return "a placement" if isinstance(self.answer, Placement) else "a refusal"

    def as_data(self) -> dict[str, Any]:
        decision = self.decision
        return {
            "record": decision.id,
            "run": decision.run.name,
            "at": decision.at.isoformat(),
            "pass": decision.record.pass_no,
            "placed": decision.placed,
            "same": self.same,
            "digest_then": decision.digest,
            "digest_now": self.digest,
            "text": self.text,
            "answer": self.answer.as_data(),
        }


def replay(decision: DecisionRecord) -> Replay:
    """Puts what was kept through the engine. Raises ValueError when the record can't be read by this release."""
    answer = recall_decision(decision).answer
    return Replay(decision, answer, answer_digest(answer))


class Command(BaseCommand):
    help = "Repeats a kept decision of a pass and compares the answers. Exit 1 when they differ."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("record", nargs="?", type=int, help="number of the decision record")
        parser.add_argument("--last", type=int, metavar="N", help="repeat the newest N instead")
        parser.add_argument("--json", action="store_true", help="one JSON object a line")

    def handle(self, *, record: int | None, last: int | None, **options: Any) -> None:
        if (record is None) == (last is None):
            raise CommandError("Name one record, or say --last N.", returncode=2)
        every = self._shown(record, last, as_json=options["json"])
        different = [replayed for replayed in every if not replayed.same]
        if different:
            names = ", ".join(str(replayed.decision.id) for replayed in different)
            raise CommandError(f"Another answer than then: record {names}.")

    def _shown(self, record: int | None, last: int | None, *, as_json: bool) -> list[Replay]:
        found = []
        for decision in _decisions(record, last):
            try:
                found.append(replay(decision))
            except ValueError as error:
                raise CommandError(f"Record {decision.id} can't be repeated: {error}") from error
            self._show(found[-1], as_json=as_json)
        return found

    def _show(self, replayed: Replay, *, as_json: bool) -> None:
        if as_json:
            self.stdout.write(json.dumps(replayed.as_data(), ensure_ascii=False))
            return
        for line in replayed.lines():
            self.stdout.write(line)


def _decisions(record: int | None, last: int | None) -> list[DecisionRecord]:
    """Newest first. Raises CommandError where there is no such record."""
    kept = DecisionRecord.objects.select_related("record__topology", "run").defer("record__topology__data")
    if last is not None:
        return list(kept.order_by("-id")[:last])
    found = list(kept.filter(id=record or 0))
    if not found:
        newest = kept.order_by("-id").values_list("id", flat=True).first()
        hint = f"the newest is {newest}" if newest else "none is kept yet"
        raise CommandError(f"There is no decision record {record}; {hint}.", returncode=2)
    return found
