"""What Alembic runs: the revisions, in the transaction that `schema.upgrade` has begun."""

from alembic import context

from tapegrad.bench.store.tables import metadata, version

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=version.name,
)
context.run_migrations()
