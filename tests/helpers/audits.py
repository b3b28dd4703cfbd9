"""What an audit finds wrong."""


def flagged(log, **options):
    """The level of each check that has anything to say."""
    return {found.check: found.level for found in log.audit(threads=1, **options).findings if found.level != "ok"}
