"""The kernel's table of mounts, as the agent reads it."""

from agent import mount_table


def test_points_with_blanks_and_with_bytes_that_are_no_text(tmp_path, monkeypatch):
    table = tmp_path / "mounts"
    table.write_bytes(
        b"tmpfs /run tmpfs rw 0 0\n"
        b"gpu-02:/srv/a /state/mounts/a\\040b/0 nfs4 ro 0 0\n"
        b"gpu-02:/srv/b /state/\\134\\011\xff\xc3\xa4 nfs4 ro 0 0\n"
        b"/dev/sda /run ext4 rw 0 0\n"
    )
    monkeypatch.setattr(mount_table, "_TABLE", table)
    assert mount_table.mounted() == {
        "/run": "ext4",
        "/state/mounts/a b/0": "nfs4",
        "/state/\\\t\udcffä": "nfs4",
    }
