"""Compiled code that is kept on disk, and when it is made anew."""

from clop.kernels import jit


def test_code_is_compiled_anew_when_any_kernel_has_changed(monkeypatch):
    """Fails if code that was compiled with another file's mistake in it outlives the mending of that file."""
    names = set()
    for sources in ("0" * 64, "1" * 64):
        monkeypatch.setattr(jit, "_SOURCES", sources)

        @jit.jit
        def function():
            return 1

        assert function() == 1
        names.add(function._cache._impl.filename_base)
    assert len(names) == 2


def test_all_kernels_are_looked_at():
    from clop.kernels import draw, move, pool, shuffle, stem

    for compiled in (draw._draw, move._gather_words, pool.pool, shuffle.plan, stem._convolve):
        assert jit._SOURCES[:8] in compiled.__qualname__
