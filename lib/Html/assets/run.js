// Page of a run: charts of the loss and other series from `data`, which
// runtime/lib/report/HtmlReport.cpp writes.
//   points: [first step, last step, mean loss, minimum, maximum, gradient norm, learning rate,
//   rate], by step; evaluations: [step, loss]; null: not finite; changes: steps after which other
//   devices took part
const SERIES = {step: 1, loss: 2, low: 3, high: 4, norm: 5, lr: 6, rate: 7};
const span = values => {
  const known = values.filter(v => v !== null && isFinite(v));
  return known.length ? [Math.min(...known), Math.max(...known)] : null;
};
const short = v => v === null || v === undefined ? 'not finite' : v === 0 ? '0' : Math.abs(v) >= 1e7 || Math.abs(v) < 1e-3 ? v.toExponential(2) : String(+v.toPrecision(5));

// Round numbers (1, 2 or 5 times a power of ten) between `low` and `high`, about `count` of them;
// integers if `whole`.
function ticks(low, high, count, whole) {
  const raw = (high - low) / count, power = 10 ** Math.floor(Math.log10(raw)), out = [];
  const step = Math.max(whole ? 1 : 0, power * (raw / power < 1.5 ? 1 : raw / power < 3 ? 2 : raw / power < 7 ? 5 : 10));
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++)
    out.push(i * step || 0); // no -0
  return out;
}
// Ticks of a logarithmic axis: powers of ten and, if they are few, their multiples.
function logTicks(low, high) {
  for (const multiples of [[1], [1, 3], [1, 2, 5], [1, 2, 3, 4, 5, 6, 7, 8, 9]]) {
    const out = [];
    for (let e = Math.floor(Math.log10(low)); e <= Math.log10(high); e++)
      out.push(...multiples.map(m => m * 10 ** e).filter(v => v >= low && v <= high));
    if (out.length >= 3)
      return out.filter((v, i) => i % Math.ceil(out.length / 8) === 0);
  }
  return ticks(low, high, 4);
}

// Draws a canvas with steps on the x axis. lines: [column, color]; band: [low, high] columns; dots:
// [step, value]s.
function plot(id, height, what) {
  const canvas = document.getElementById(id), left = 64, right = 10, top = 8, bottom = 22;
  let at = null;
  function draw() {
    const [x, w] = size(canvas, height), steps = data.points.map(p => p[SERIES.step]).concat((what.dots || []).map(d => d[0]));
    x.clearRect(0, 0, w, height);
    x.font = '11px system-ui';
    const log = what.log && what.log();
    const columns = what.lines.map(l => l[0]).concat(what.band || []);
    let range = span(data.points.flatMap(p => columns.map(k => p[k])).concat((what.dots || []).map(d => d[1])).filter(v => !log || v > 0));
    if (!range || !steps.length) {
      x.fillStyle = c('dim');
      x.fillText('nothing to show', left, height / 2);
      return;
    }
    const scale = log ? Math.log10 : v => v, back = log ? v => 10 ** v : v => v;
    let [low, high] = range.map(scale);
    const margin = (high - low || Math.abs(high) || 1) * 0.05;
    low = !log && low >= 0 ? Math.max(0, low - margin) : low - margin; // non-negative values have no axis below 0
    high += margin;
    const first = Math.min(...steps), last = Math.max(...steps, first + 1);
    const px = s => left + (s - first) * (w - left - right) / (last - first), py = v => top + (high - scale(v)) * (height - top - bottom) / (high - low);
    for (const tick of log ? logTicks(back(low), back(high)) : ticks(low, high, 4)) {
      const y = py(tick);
      x.fillStyle = c('line');
      x.fillRect(left, y, w - left - right, 1);
      x.fillStyle = c('dim');
      x.fillText(short(tick), 4, y + 4);
    }
    x.fillStyle = c('dim');
    for (const tick of ticks(first, last, 5, true))
      x.fillText(tick, Math.min(px(tick), w - 46), height - 6);
    for (const s of data.changes)
      if (s >= first && s <= last) {
        x.fillStyle = c('b');
        x.fillRect(px(s), top, 1, height - top - bottom);
      }
    const good = v => v !== null && (!log || v > 0);
    if (what.band) {
      x.fillStyle = c(what.lines[0][1]) + '33';
      for (const p of data.points)
        if (p[what.band[0]] !== p[what.band[1]] && good(p[what.band[0]]) && good(p[what.band[1]]))
          x.fillRect(px(p[0]), py(p[what.band[1]]), Math.max(1, px(p[1]) - px(p[0])), py(p[what.band[0]]) - py(p[what.band[1]]));
    }
    for (const [column, colour] of what.lines) {
      x.strokeStyle = c(colour);
      x.lineWidth = 1.5;
      x.beginPath();
      let pen = false;
      for (const p of data.points) {
        if (good(p[column]))
          pen ? x.lineTo(px(p[SERIES.step]), py(p[column])) : x.moveTo(px(p[SERIES.step]), py(p[column]));
        pen = good(p[column]);
      }
      x.stroke();
    }
    for (const [step, value] of what.dots || [])
      if (good(value)) {
        x.fillStyle = c('b');
        x.beginPath();
        x.arc(px(step), py(value), 3.5, 0, 7);
        x.fill();
      }
    at = e => {
      const s = first + (e.offsetX - left) * (last - first) / (w - left - right);
      const p = data.points.reduce((a, b) => Math.abs(b[1] - s) < Math.abs(a[1] - s) ? b : a, data.points[0]);
      if (!p || e.offsetX < left)
        return '';
      const near = (what.dots || []).filter(d => Math.abs(d[0] - s) <= (last - first) / 60).slice(0, 1);
      return (p[0] === p[1] ? 'step ' + p[1] : 'steps ' + p[0] + ' to ' + p[1]) + what.lines.map(l => '\n' + l[2] + ' ' + short(p[l[0]])).join('') +
             near.map(d => '\nevaluation after step ' + d[0] + ': ' + short(d[1])).join('');
    };
  }
  canvas.onmousemove = e => say(e, at ? at(e) : '');
  canvas.onmouseleave = e => say(e, '');
  draw();
  addEventListener('resize', draw);
  return draw;
}

const log = document.getElementById('log');
legend(document.getElementById('loss'), [['loss of training', 'f']].concat(data.evaluations.length ? [['loss on held-out data', 'b']] : []),
       (data.points.some(p => p[0] !== p[1]) ? '<span class=quiet>line: mean of several steps; shade: least to largest</span>' : '') +
       (data.changes.length ? '<span class=quiet>vertical line: change of devices</span>' : ''));
log.onchange = plot('loss', 300, {lines: [[SERIES.loss, 'f', 'loss']], band: [SERIES.low, SERIES.high], dots: data.evaluations, log: () => log.checked});
plot('norm', 110, {lines: [[SERIES.norm, 'w', 'gradient norm']]});
plot('lr', 110, {lines: [[SERIES.lr, 'u', 'learning rate']]});
plot('rate', 110, {lines: [[SERIES.rate, 'g', data.unit]]});
