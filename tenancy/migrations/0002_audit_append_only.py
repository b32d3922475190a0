"""The audit log is append-only: the database itself refuses to change or remove a line."""

from django.db import migrations

FORWARD = """
CREATE FUNCTION tenancy_auditevent_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'the audit log is append-only';
END $$;
CREATE TRIGGER tenancy_auditevent_append_only BEFORE UPDATE OR DELETE ON tenancy_auditevent
  FOR EACH ROW EXECUTE FUNCTION tenancy_auditevent_refuse();
"""
BACKWARD = """
DROP TRIGGER tenancy_auditevent_append_only ON tenancy_auditevent;
DROP FUNCTION tenancy_auditevent_refuse();
"""


class Migration(migrations.Migration):
    dependencies = [("tenancy", "0001_initial")]
    operations = [migrations.RunSQL(FORWARD, BACKWARD)]
