//! Bars by kernel, memory model and system, as a picture (SVG).

use std::fmt::Write as _;

use super::{Results, System};

const BAR: u32 = 18;
const GAP: u32 = 14;
const HEIGHT: u32 = 240;
const LEFT: u32 = 48;
const TOP: u32 = 40;
const PANEL: u32 = HEIGHT + 84;

/// The colour of a system: told apart without colours, too, since they differ in brightness.
const fn colour(system: System) -> &'static str {
    match system {
        System::Vanilla => "#d9d9d9",
        System::Tcp => "#c7522a",
        System::Ring => "#e5a155",
        System::Poll => "#efd9a7",
        System::Fused => "#1f4e79",
    }
}

impl Results {
    /// Times in relation to that of the program without moves, in the same memory model. A bar that is higher than the panel is cut,
    /// and its number stands above it.
    pub fn picture(&self) -> String {
        let (systems, models) = (&self.matrix.systems, &self.matrix.models);
        let group = systems.len() as u32 * BAR + GAP;
        let width = LEFT + models.len() as u32 * group + 150;
        let height = TOP + self.matrix.benches.len() as u32 * PANEL;
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" role=\"img\" \
             font-family=\"sans-serif\" font-size=\"11\">\n\
             <title>Time of NPB class {} in relation to vanilla</title>\n\
             <rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>\n",
            self.matrix.class.name()
        );
        for (n, &system) in systems.iter().enumerate() {
            let (x, y) = (width - 130, TOP + 16 * n as u32);
            // Writing to a string cannot fail.
            let _ = writeln!(
                out,
                "<rect x=\"{x}\" y=\"{y}\" width=\"11\" height=\"11\" fill=\"{}\" stroke=\"#333\"/>\
                 <text x=\"{}\" y=\"{}\">{}</text>",
                colour(system),
                x + 16,
                y + 10,
                system.name()
            );
        }
        for (panel, &bench) in self.matrix.benches.iter().enumerate() {
            let top = TOP + panel as u32 * PANEL;
            let base = top + HEIGHT;
            let relative = |model, system| {
                let time = self.figures(bench, model, system)?.time_ps;
                let vanilla = self.figures(bench, model, System::Vanilla)?.time_ps;
                Some(time as f64 / vanilla.max(1) as f64)
            };
            let all = models
                .iter()
                .flat_map(|&m| systems.iter().map(move |&s| (m, s)));
            let most = all.filter_map(|(m, s)| relative(m, s)).fold(1.0, f64::max);
            // A network is so slow that beside it the others could not be told apart.
            let scale = f64::from(HEIGHT) / most.min(4.0);
            let _ = writeln!(
                out,
                "<text x=\"{LEFT}\" y=\"{}\" font-size=\"14\">{}, class {}</text>",
                top - 8,
                bench.name(),
                self.matrix.class.name()
            );
            for line in 0..=(most.min(4.0) as u32) {
                let y = f64::from(base) - f64::from(line) * scale;
                let _ = writeln!(
                    out,
                    "<line x1=\"{LEFT}\" x2=\"{}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#ccc\"/>\
                     <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{line}</text>",
                    width - 150,
                    LEFT - 6,
                    y + 4.0
                );
            }
            for (m, &model) in models.iter().enumerate() {
                let x = LEFT + m as u32 * group + GAP / 2;
                let _ = writeln!(
                    out,
                    "<text x=\"{x}\" y=\"{}\">{}</text>",
                    base + 18,
                    model.name()
                );
                for (s, &system) in systems.iter().enumerate() {
                    let at = x + s as u32 * BAR;
                    let Some(relative) = relative(model, system) else {
                        let _ = writeln!(out, "<text x=\"{at}\" y=\"{}\">?</text>", base - 4);
                        continue;
                    };
                    let bar = (relative * scale).min(f64::from(HEIGHT));
                    let y = f64::from(base) - bar;
                    let _ = writeln!(
                        out,
                        "<rect x=\"{at}\" y=\"{y:.1}\" width=\"{}\" height=\"{bar:.1}\" fill=\"{}\" stroke=\"#333\"/>\
                         <text x=\"{at}\" y=\"{:.1}\" font-size=\"8\">{relative:.2}</text>",
                        BAR - 3,
                        colour(system),
                        y - 3.0
                    );
                }
            }
        }
        out.push_str("</svg>\n");
        out
    }
}

#[cfg(test)]
mod tests {
    use super::super::results::tests::results;

    #[test]
    fn each_point_has_a_bar_or_a_question_mark() {
        let picture = results([[10, 90, 20, 15], [10, 40, 0, 30]]).picture();
        assert_eq!(picture.matches("<rect").count(), 1 + 4 + 7, "{picture}");
        assert!(picture.contains(">?<") && picture.contains(">9.00<"));
        assert!(picture.ends_with("</svg>\n"));
    }
}
