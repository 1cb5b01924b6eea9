// SPDX-License-Identifier: Apache-2.0
// A curve that grows. The box has its size before anything is drawn: nothing on the page moves.

import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";

export function Chart({ label, times, values }) {
  const box = useRef(null);
  const plot = useRef(null);

  useEffect(() => {
    const style = getComputedStyle(document.documentElement);
    const ink = style.getPropertyValue("--muted");
    const axis = { stroke: ink, grid: { stroke: style.getPropertyValue("--line"), width: 1 }, ticks: { show: false }, size: 56 };
    const options = {
      width: box.current.clientWidth, height: 150, legend: { show: false }, cursor: { y: false },
      axes: [{ ...axis, size: 40 }, axis],
      series: [{}, { label, stroke: style.getPropertyValue("--accent"), width: 2, spanGaps: true, points: { show: false } }],
    };
    plot.current = new uPlot(options, [[], []], box.current);
    const watcher = new ResizeObserver(() => plot.current.setSize({ width: box.current.clientWidth, height: 150 }));
    watcher.observe(box.current);
    return () => {
      watcher.disconnect();
      plot.current.destroy();
    };
  }, [label]);

  useEffect(() => plot.current?.setData([times, values]), [times, values]);
  return <figure><figcaption>{label}</figcaption><div class="chart" ref={box} /></figure>;
}
