"""The layer on the page: controls for the live one, and pictures for who has no JavaScript."""

import numpy as np
from numpy.typing import NDArray

from clop.game_frame import draw_frame
from clop.kernels.draw import draw
from clop.report.page.png import png_uri

ALPHAS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
_SIZES = (8, 16, 32, 64)
_VARIANTS = {
    "paper": ("paper", "each position once, in random order, with a neighbour inside the map"),
    "raster": ("authors’ code", "two sweeps in raster order with alpha / 2, over the ends of rows"),
    "clamp": ("clamp", "a neighbour drawn outside the map means no swap"),
}


def section() -> str:
    """The section of the page."""
    frame = draw_frame()
    sizes = "".join(_choice("size", str(size), f"{size}×{size}", size == 64) for size in _SIZES)
    variants = "".join(
        _choice("variant", name, text, name == "paper", hint) for name, (text, hint) in _VARIANTS.items()
    )
    return f"""<section id="layer">
<h2>The layer, live</h2>
<p>CLOP visits the positions of a feature map once each in random order. With probability <i>alpha</i> a position
trades places with a direct neighbour, in all channels alike. Here each tile of the image is one position of the map.
What you see is the layer itself: a seed draws the same permutation as in Python, bit for bit.</p>
<noscript>{_still(frame)}</noscript>
<div class="layer needs-js">
<form class="controls" id="layer-form" autocomplete="off">
<label class="slider"><span>alpha <output id="layer-alpha-text">0.50</output></span>
<input type="range" id="layer-alpha" min="0" max="1" step="0.01" value="0.5"></label>
<fieldset><legend>map</legend><div class="choices">{sizes}</div></fieldset>
<fieldset><legend>rule</legend><div class="choices">{variants}</div></fieldset>
<div class="switches">
<label class="switch"><input type="checkbox" id="layer-local" checked> local</label>
<label class="switch"><input type="checkbox" id="layer-consistent" checked> channel-consistent</label>
</div>
<div class="row"><label>seed <input type="text" inputmode="numeric" id="layer-seed" value="0" size="12"></label>
<button type="button" id="layer-new-seed">another draw</button></div>
<div class="row"><label>image <select id="layer-image"><option value="frame">a game frame</option>
<option value="wheel">colours by place</option><option value="own">your own…</option></select></label>
<input type="file" id="layer-file" accept="image/*" aria-label="your own image" hidden></div>
</form>
<figure><canvas id="layer-before" width="64" height="64" role="img" aria-label="the image"></canvas>
<figcaption>the image</figcaption></figure>
<figure><canvas id="layer-after" width="64" height="64" role="img" aria-label="the image after the layer"></canvas>
<figcaption>after the layer</figcaption></figure>
<div class="travel">
<p class="big"><output id="layer-moved">–</output><span>of the positions hold a value from elsewhere</span></p>
<h3 id="travel-title">How far values travel</h3>
<svg id="layer-travel" viewBox="0 0 300 150" role="img" aria-labelledby="travel-title"></svg>
<p class="faint">steps between neighbours; drawn in <output id="layer-time">–</output> ms</p>
</div>
<img id="layer-frame" src="{png_uri(frame)}" alt="" hidden>
</div>
</section>"""


def _choice(name: str, value: str, text: str, checked: bool, hint: str = "") -> str:
    state, title = " checked" if checked else "", f' title="{hint}"' if hint else ""
    return f'<label{title}><input type="radio" name="{name}" value="{value}"{state}><span>{text}</span></label>'


def _still(frame: NDArray[np.uint8]) -> str:
    """The paper's Figure 2 for the frame."""
    tiles = "".join(
        f'<figure><img src="{png_uri(swapped(frame, alpha))}" width="128" height="128" alt="">'
        f"<figcaption>alpha {alpha:g}</figcaption></figure>"
        for alpha in ALPHAS
    )
    note = "With JavaScript this is a live picture; without it, one draw for each alpha."
    return f'<p>{note}</p><div class="tiles">{tiles}</div>'


def swapped(frame: NDArray[np.uint8], alpha: float, seed: int = 0) -> NDArray[np.uint8]:
    """An image (H, W, 3) after the layer, each pixel a position."""
    if alpha == 0:
        return frame
    (permutation,) = draw(seed, frame.shape[:2], (1,), alpha, "paper", True)
    return frame.reshape(-1, 3)[permutation].reshape(frame.shape)
