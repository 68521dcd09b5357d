//! The time of moves by size of the heap, as a picture (SVG).

use std::fmt::Write as _;

use super::{Paging, Process};

const PANEL: f64 = 240.0;
const LEFT: f64 = 70.0;
const TOP: f64 = 40.0;
const STEP: f64 = PANEL + 90.0;

const fn colour(way: Paging) -> &'static str {
    match way {
        Paging::Ahead => "#1f4e79",
        Paging::Demand => "#c7522a",
    }
}

impl Process {
    /// A panel for each model: moves as lines, and moves with all touches as dashed lines, in milliseconds by MiB.
    pub fn picture(&self) -> String {
        let models = self.models();
        let width = LEFT + models.len().max(1) as f64 * STEP;
        let height = TOP + PANEL + 60.0;
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" role=\"img\" \
             font-family=\"sans-serif\" font-size=\"11\">\n\
             <title>Time of moves of a process by MiB of its heap</title>\n\
             <rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>\n"
        );
        let ms = |ns: u64| ns as f64 / 1e6;
        let all = self.moves.iter();
        let high = all.clone().map(|(_, m)| ms(m.whole + m.touch));
        let high = high.fold(1e-9, f64::max);
        let far = all.map(|(k, _)| k.1 as f64).fold(1.0, f64::max);
        for (n, model) in models.into_iter().enumerate() {
            let left = LEFT + n as f64 * STEP;
            let at = |mib: u64, ms: f64| {
                let (x, y) = (mib as f64 / far, ms / high);
                (left + x * PANEL, TOP + (1.0 - y) * PANEL)
            };
            let base = TOP + PANEL;
            // Writing to a string cannot fail.
            let _ = writeln!(
                out,
                "<text x=\"{left}\" y=\"20\">{model}</text>\
                 <path d=\"M{left} {TOP}V{base}h{PANEL}\" fill=\"none\" stroke=\"#333\"/>\
                 <text x=\"{}\" y=\"{}\" text-anchor=\"end\">{high:.0} ms</text>\
                 <text x=\"{}\" y=\"{}\" text-anchor=\"end\">{far:.0} MiB</text>",
                left - 4.0,
                TOP + 10.0,
                left + PANEL,
                base + 16.0
            );
            for (row, way) in Paging::ALL.into_iter().enumerate() {
                for (dashes, touches, what) in [("", 0, "move"), ("4 3", 1, "move and touch")] {
                    let points = self.heaps(model).into_iter().filter_map(|mib| {
                        let one = self.of(model, mib, way)?;
                        let (x, y) = at(mib, ms(one.whole + touches * one.touch));
                        Some(format!("{x:.1},{y:.1}"))
                    });
                    let points: Vec<String> = points.collect();
                    let y = base + 30.0 + 14.0 * row as f64;
                    let x = left + 115.0 * touches as f64;
                    let _ = writeln!(
                        out,
                        "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\" stroke-dasharray=\"{dashes}\"/>\
                         <text x=\"{x}\" y=\"{y}\" fill=\"{}\">{}{}, {what}</text>",
                        points.join(" "),
                        colour(way),
                        colour(way),
                        way.name(),
                        if touches == 1 { " (dashed)" } else { "" }
                    );
                }
            }
        }
        out.push_str("</svg>\n");
        out
    }
}
