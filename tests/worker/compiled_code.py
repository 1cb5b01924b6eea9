"""What torch.compile would have made, as a rank packs it: with keys and contents of our choice."""

from torch.compiler import _cache
from torch.utils._appending_byte_serializer import AppendingByteSerializer

from trainmover.state.encode import encode


def packed(kind: str, key: str, content: bytes, libraries: dict[str, bytes] | None = None) -> bytes:
    """One artifact."""
    _cache.CacheArtifactManager._ensure_cache_artifacts_registered()
    artifact = _cache.CacheArtifactFactory.create(kind, key, content)
    serializer = AppendingByteSerializer(serialize_fn=_cache._serialize_single_cache)
    serializer.append((kind, [artifact]))
    return bytes(encode([serializer.to_bytes(), libraries or {}]))
