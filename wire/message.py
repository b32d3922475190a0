"""What all messages between agents and the console have in common."""

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from wire.names import plain_text

Epoch = Annotated[float, Field(ge=0, le=4_102_444_800)]
"""Seconds since 1970, up to the year 2100: corrected by any skew it is still a time."""
Number = Annotated[int, Field(ge=0, lt=2**63)]
"""What fits into a column of the database: one number that doesn't must not stop a machine's channel."""
Text = Annotated[str, AfterValidator(plain_text)]
"""Shown to people: what would move the cursor or turn the text around it is replaced."""


class Message(BaseModel):
    # An error's text may end up in a log, and an assignment carries secrets: it doesn't repeat its input.
    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False, hide_input_in_errors=True)
