"""The commit of a run; whether a block was stationary and how many cores it kept busy.

The columns have defaults in the database, so that an older tapegrad that has the store open goes
on writing.
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Add the columns."""
    op.add_column(
        "runs", sa.Column("commit", sa.Text, nullable=False, server_default=sa.text("''"))
    )
    op.add_column(
        "blocks", sa.Column("stationary", sa.Boolean, nullable=False, server_default=sa.true())
    )
    op.add_column(
        "blocks", sa.Column("cores", sa.Double, nullable=False, server_default=sa.text("0"))
    )
