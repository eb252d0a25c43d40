"""The login of Amazon MSK by IAM: `KAFKA_OAUTH_CB=bridge.kafka.msk_iam:token`, with AWS's signer (extra `aws`)."""

import os
from typing import Final

from bridge.errors import how_to_install

try:
    from aws_msk_iam_sasl_signer import MSKAuthTokenProvider
except ImportError as missing:
    raise ImportError(f"AWS's signer is not installed; {how_to_install('aws')}") from missing

#: The variables that may name the region, as in AWS's own tools.
_REGION: Final = ("AWS_REGION", "AWS_DEFAULT_REGION")


def token(config: str) -> tuple[str, float]:
    """Return a token that AWS's credentials have signed for a region, and when it expires.

    Raises:
        LookupError: no region is set, or AWS's chain of credentials has none.
    """
    region = config or next(filter(None, map(os.environ.get, _REGION)), "")
    if not region:
        raise LookupError("set AWS_REGION to the region of the cluster, as in eu-west-1")
    try:
        signed, expires_ms = MSKAuthTokenProvider.generate_auth_token(region)
    except AttributeError as error:
        # Without credentials the signer reads an attribute of None.
        raise LookupError("AWS's chain of credentials has none: set a role, a profile or AWS_ACCESS_KEY_ID") from error
    return signed, expires_ms / 1000
