//! Lines and bars as SVG, without fonts of the page and without links.
//!
//! Colours are set by the style sheet of the document, by the attributes that are drawn: so a figure is readable in light and
//! in dark, and on paper.

use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::show::shown;

/// Colours of series, which are readable on light and on dark ground.
pub const COLOURS: [(u8, u8, u8); 6] = [
    (0x2f, 0x7e, 0xd8),
    (0xd9, 0x6b, 0x0c),
    (0x2a, 0x9d, 0x5c),
    (0xc2, 0x3b, 0x5e),
    (0x8a, 0x63, 0xd2),
    (0x7a, 0x7a, 0x7a),
];
const WIDTH: u32 = 720;
const HEIGHT: u32 = 360;
/// Size of letters.
const LETTERS: u32 = 17;
/// How many labels of bars stand side by side; more are turned.
const LEVEL_LABELS: usize = 8;

/// Points of one name. A point without a value is a gap.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Its name.
    pub name: String,
    /// Points: of lines by x, of bars in the order of the labels.
    pub points: Vec<(f64, Option<f64>)>,
}

/// How points are drawn.
#[derive(Clone, Debug, PartialEq)]
pub enum Shape {
    /// Lines, with both axes logarithmic or not.
    Lines {
        /// Whether x is logarithmic.
        log_x: bool,
        /// Whether y is logarithmic.
        log_y: bool,
    },
    /// Groups of bars with these labels.
    Bars(Vec<String>),
}

/// A figure.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// What it shows.
    pub title: String,
    /// Name and unit of the axes.
    pub axes: [String; 2],
    /// How it is drawn.
    pub shape: Shape,
    /// What is drawn.
    pub series: Vec<Series>,
}

impl Figure {
    /// Lines over x.
    pub fn lines(title: &str, axes: [&str; 2], log: [bool; 2]) -> Figure {
        Figure {
            title: title.into(),
            axes: axes.map(Into::into),
            shape: Shape::Lines {
                log_x: log[0],
                log_y: log[1],
            },
            series: Vec::new(),
        }
    }

    /// Groups of bars.
    pub fn bars(title: &str, y: &str, labels: Vec<String>) -> Figure {
        Figure {
            title: title.into(),
            axes: [String::new(), y.into()],
            shape: Shape::Bars(labels),
            series: Vec::new(),
        }
    }

    /// Adds a series.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, points: Vec<(f64, Option<f64>)>) -> Figure {
        let name = name.into();
        self.series.push(Series { name, points });
        self
    }

    /// Adds a series of bars.
    #[must_use]
    pub fn with_bars(self, name: impl Into<String>, values: Vec<Option<f64>>) -> Figure {
        let points = values.into_iter().enumerate();
        self.with(name, points.map(|(n, v)| (n as f64, v)).collect())
    }

    fn values(&self) -> impl Iterator<Item = (f64, f64)> {
        let points = self.series.iter().flat_map(|s| s.points.iter());
        points.filter_map(|&(x, y)| Some((x, y?)))
    }

    /// Turned labels take more room.
    fn height(&self) -> u32 {
        match &self.shape {
            Shape::Bars(labels) if labels.len() > LEVEL_LABELS => HEIGHT + 150,
            _ => HEIGHT,
        }
    }

    /// The figure as SVG; nothing, if there is no point with a value.
    pub fn svg(&self) -> Option<String> {
        self.values().next()?;
        let mut out = String::new();
        let root = SVGBackend::with_string(&mut out, (WIDTH, self.height())).into_drawing_area();
        // Drawing into a string fails only for ranges that are empty, which the axes exclude.
        let drawn = match &self.shape {
            Shape::Lines { log_x, log_y } => self.draw_lines(&root, *log_x, *log_y),
            Shape::Bars(labels) => self.draw_bars(&root, labels),
        };
        drawn.and_then(|()| root.present().ok())?;
        drop(root);
        Some(responsive(&out, self.height()))
    }

    /// Where lines are drawn: logarithms of what is logarithmic.
    fn draw_lines(
        &self,
        root: &DrawingArea<SVGBackend<'_>, Shift>,
        log_x: bool,
        log_y: bool,
    ) -> Option<()> {
        let put = |v: f64, log: bool| if log { v.max(1e-12).log2() } else { v };
        let back = |v: f64, log: bool| if log { v.exp2() } else { v };
        let at = |(x, y): (f64, f64)| (put(x, log_x), put(y, log_y));
        let points: Vec<(f64, f64)> = self.values().map(at).collect();
        let xs = range(points.iter().map(|p| p.0), log_x);
        let ys = range(points.iter().map(|p| p.1), log_y);
        let mut chart = ChartBuilder::on(root)
            .margin(12)
            .x_label_area_size(44)
            .y_label_area_size(78)
            .build_cartesian_2d(xs.0..xs.1, ys.0..ys.1)
            .ok()?;
        let label_x = |v: &f64| shown_on_axis(back(*v, log_x));
        let label_y = |v: &f64| shown_on_axis(back(*v, log_y));
        chart
            .configure_mesh()
            .disable_mesh()
            .x_labels(8)
            .y_labels(6)
            .x_desc(self.axes[0].as_str())
            .y_desc(self.axes[1].as_str())
            .x_label_formatter(&label_x)
            .y_label_formatter(&label_y)
            .label_style(("sans-serif", LETTERS))
            .axis_desc_style(("sans-serif", LETTERS))
            .draw()
            .ok()?;
        for (n, series) in self.series.iter().enumerate() {
            let colour = colour(n);
            // A gap ends a line, and another one begins behind it.
            for run in series.points.split(|p| p.1.is_none()) {
                let run: Vec<(f64, f64)> =
                    run.iter().filter_map(|p| Some(at((p.0, p.1?)))).collect();
                chart
                    .draw_series(LineSeries::new(run.clone(), colour.stroke_width(2)))
                    .ok()?;
                let dots = run.into_iter().map(|p| Circle::new(p, 3, colour.filled()));
                chart.draw_series(dots).ok()?;
            }
        }
        Some(())
    }

    fn draw_bars(
        &self,
        root: &DrawingArea<SVGBackend<'_>, Shift>,
        labels: &[String],
    ) -> Option<()> {
        let most = self.values().map(|p| p.1).fold(0.0, f64::max);
        let top = if most > 0.0 { most * 1.12 } else { 1.0 };
        let groups = labels.len().max(1);
        let turned = labels.len() > LEVEL_LABELS;
        let mut chart: ChartContext<'_, _, Cartesian2d<RangedCoordf64, RangedCoordf64>> =
            ChartBuilder::on(root)
                .margin(12)
                .x_label_area_size(if turned { 190 } else { 34 })
                .y_label_area_size(78)
                .build_cartesian_2d(0.0..groups as f64, 0.0..top)
                .ok()?;
        chart
            .configure_mesh()
            .disable_mesh()
            .disable_x_axis()
            .y_labels(6)
            .y_desc(self.axes[1].as_str())
            .y_label_formatter(&|v| shown_on_axis(*v))
            .label_style(("sans-serif", LETTERS))
            .axis_desc_style(("sans-serif", LETTERS))
            .draw()
            .ok()?;
        let width = 0.8 / self.series.len().max(1) as f64;
        for (n, series) in self.series.iter().enumerate() {
            let bars = series.points.iter().filter_map(|&(group, value)| {
                let left = group + 0.1 + n as f64 * width;
                Some(Rectangle::new(
                    [(left, 0.0), (left + width * 0.92, value?)],
                    colour(n).filled(),
                ))
            });
            chart.draw_series(bars).ok()?;
        }
        let font = ("sans-serif", LETTERS).into_font();
        let (font, anchor) = match turned {
            true => (
                font.transform(FontTransform::Rotate90),
                Pos::new(HPos::Left, VPos::Center),
            ),
            false => (font, Pos::new(HPos::Center, VPos::Top)),
        };
        let style = font.color(&BLACK).pos(anchor);
        for (n, label) in labels.iter().enumerate() {
            let (x, y) = chart.backend_coord(&(n as f64 + 0.5, 0.0));
            let text = Text::new(label.clone(), (x, y + 8), style.clone());
            root.draw(&text).ok()?;
        }
        Some(())
    }
}

fn colour(n: usize) -> RGBColor {
    let (r, g, b) = COLOURS[n % COLOURS.len()];
    RGBColor(r, g, b)
}

/// From the least to the greatest value with room around; from 0 on if the axis is not logarithmic.
fn range(values: impl Iterator<Item = f64>, log: bool) -> (f64, f64) {
    let bounds = (f64::INFINITY, f64::NEG_INFINITY);
    let (low, high) = values.fold(bounds, |(a, b), v| (a.min(v), b.max(v)));
    let low = if log { low } else { low.min(0.0) };
    let room = ((high - low) * 0.06).max(if log { 0.25 } else { high.abs() * 0.06 + 1e-9 });
    (if log { low - room } else { low }, high + room)
}

/// A number beside an axis.
fn shown_on_axis(value: f64) -> String {
    match value.abs() {
        v if v >= 1e9 => format!("{} G", shown(value / 1e9)),
        v if v >= 1e6 => format!("{} M", shown((value / 1e4).round() / 100.0)),
        v if v >= 1e4 => format!("{} k", shown((value / 10.0).round() / 100.0)),
        v if v >= 10.0 => shown(value.round()),
        _ => shown((value * 100.0).round() / 100.0),
    }
}

/// The drawing with a view box in the place of a size, and without a name space: it stands in a page.
fn responsive(svg: &str, height: u32) -> String {
    let size = format!("width=\"{WIDTH}\" height=\"{height}\" ");
    let svg = svg.replacen(&size, "class=\"fig\" role=\"img\" ", 1);
    svg.replacen(" xmlns=\"http://www.w3.org/2000/svg\"", "", 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_gaps_for_points_that_are_missing() {
        let figure = Figure::lines("t", ["lines", "ns"], [true, true]);
        let points = vec![
            (1.0, Some(10.0)),
            (2.0, None),
            (4.0, Some(40.0)),
            (8.0, Some(80.0)),
        ];
        let svg = figure.clone().with("fused", points).svg().unwrap();
        assert_eq!(svg.matches("<circle").count(), 3, "{svg}");
        assert!(
            !svg.contains("http") && svg.contains("class=\"fig\""),
            "{svg}"
        );
        assert_eq!(figure.with("fused", vec![(1.0, None)]).svg(), None);
    }

    #[test]
    fn bars_have_labels_and_no_bar_for_a_missing_value() {
        let figure = Figure::bars("t", "ns", vec!["is".into(), "cg".into()]);
        let count = |svg: &str| svg.matches("<rect").count();
        let both = figure.clone().with_bars("ring", vec![Some(1.0), Some(2.0)]);
        let one = figure.with_bars("ring", vec![Some(1.0), None]);
        let (both, one) = (both.svg().unwrap(), one.svg().unwrap());
        assert_eq!(count(&both), count(&one) + 1);
        assert!(one.contains("cg"), "{one}");
    }

    #[test]
    fn many_labels_are_turned() {
        let labels: Vec<String> = (0..20).map(|n| format!("operation_{n}")).collect();
        let figure = Figure::bars("t", "instructions", labels);
        let svg = figure.with_bars("here", vec![Some(1.0); 20]).svg().unwrap();
        assert!(
            svg.contains("rotate(90") && svg.contains("operation_19"),
            "{svg}"
        );
    }

    #[test]
    fn axes_are_labelled_briefly() {
        assert_eq!(shown_on_axis(2_500_000.0), "2.500 M");
        assert_eq!(shown_on_axis(12_000.0), "12 k");
        assert_eq!(shown_on_axis(1.0), "1");
    }
}
