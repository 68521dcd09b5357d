//! The document for people: one file without script, links that leave it, or files beside it.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::document::{Entry, Report};
use crate::figure::{COLOURS, Figure};
use crate::show::shown;
use crate::verdict::{Judged, Kind, Verdict};

const STYLE: &str = include_str!("style.css");
/// How many numbers are shown before the rest is folded away.
const OPEN: usize = 16;

impl Report {
    /// The document.
    pub fn html(&self) -> String {
        let size = self.size.name();
        let page = html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    title { "Dyad: figures of five papers, size " (size) }
                    style { (PreEscaped(STYLE)) }
                }
                body {
                    h1 { "Figures of five papers beside what Dyad measures" }
                    (self.first_page())
                    @for paper in self.papers() {
                        h2 { (paper) }
                        @for entry in self.entries.iter().filter(|e| e.row.paper == paper) {
                            (self.section(entry))
                        }
                    }
                }
            }
        };
        page.into_string()
    }

    fn papers(&self) -> Vec<&'static str> {
        let mut papers: Vec<&str> = self.entries.iter().map(|e| e.row.paper).collect();
        papers.dedup();
        papers
    }

    fn first_page(&self) -> Markup {
        let short = self.fingerprint.commit.chars().take(12).collect::<String>();
        let dirty = self.fingerprint.commit.ends_with("-dirty");
        html! {
            p { (self.summary()) ". Verdicts are computed from records and from bounds that were fixed in advance; none is entered by hand." }
            h3 { "Verdicts" }
            table {
                thead { tr { th { "Row" } th { "Title" } th { "Paper" } th { "Verdict" } } }
                tbody {
                    @for entry in &self.entries {
                        tr {
                            td { a href={ "#" (entry.row.id) } { (entry.row.id) } }
                            td { (entry.row.title) }
                            td { (entry.row.paper) }
                            td {
                                span class={ "verdict " (entry.verdict.kind.name()) } { (brief(&entry.verdict)) }
                                @for mark in entry.marks() { br; span class="mark" { (mark) } }
                            }
                        }
                    }
                }
            }
            h3 { "Machine and versions" }
            table {
                tbody {
                    tr { th { "Size of the report" } td { (self.size.name()) } }
                    tr { th { "Commit" } td { code { (short) } @if dirty { " with changes" } } }
                    tr { th { "QEMU" } td { (self.fingerprint.qemu.join("; ")) } }
                    tr { th { "Executable, SHA-256" } td { code { (self.fingerprint.executable) } } }
                    @for (name, value) in &self.machine { tr { th { (name) } td { (value) } } }
                }
            }
            h3 { "Not run" }
            @if self.not_run.is_empty() { p { "Every measurement that a row needs was made." } }
            @else {
                table {
                    thead { tr { th { "Measurement" } th { "Reason" } } }
                    tbody { @for (name, why) in &self.not_run { tr { td { (name) } td { (why) } } } }
                }
            }
        }
    }

    fn section(&self, entry: &Entry) -> Markup {
        let row = &entry.row;
        html! {
            section.row id=(row.id) {
                h3 { (row.id) ": " (row.title) }
                p {
                    span class={ "verdict " (entry.verdict.kind.name()) } { (entry.verdict.kind.words()) }
                    @for mark in entry.marks() { " " span class="mark" { (mark) } }
                }
                @if !entry.verdict.because.is_empty() {
                    ul { @for why in &entry.verdict.because { li { (why) } } }
                }
                dl {
                    dt { "The paper" } dd { (row.says) }
                    dt { "Here" } dd { (row.ours) }
                    @for command in entry.commands(self.size) { dt { "Repeat" } dd { code { (command) } } }
                    @for record in &entry.records {
                        dt { "Record" }
                        dd {
                            (record.measurement) ", commit " code { (record.fingerprint.commit) } ", " (record.seconds) " s, SHA-256 "
                            code { (record.sha256) }
                        }
                    }
                }
                @for figure in &entry.reading.figures { (drawn(figure)) }
                (bounds(&entry.judged))
                (numbers(entry))
                @if entry.verdict.kind != Kind::Differs && !entry.reading.counts.is_empty() {
                    details { summary { "Counts" } ul { @for count in &entry.reading.counts { li { (count) } } } }
                }
            }
        }
    }
}

/// A verdict with its first reason.
fn brief(verdict: &Verdict) -> String {
    let more = verdict.because.len().saturating_sub(1);
    match (verdict.because.first(), more) {
        (None, _) => verdict.kind.words().into(),
        (Some(why), 0) => format!("{}: {why}", verdict.kind.words()),
        (Some(why), more) => format!("{}: {why} (and {more} more)", verdict.kind.words()),
    }
}

fn drawn(figure: &Figure) -> Markup {
    let Some(svg) = figure.svg() else {
        return html! {};
    };
    html! {
        figure {
            figcaption { (figure.title) }
            p.legend {
                @for (n, series) in figure.series.iter().enumerate() {
                    span { i style=(swatch(n)) {} (series.name) }
                }
            }
            (PreEscaped(svg))
        }
    }
}

fn swatch(n: usize) -> String {
    let (r, g, b) = COLOURS[n % COLOURS.len()];
    format!("background:rgb({r},{g},{b})")
}

fn bounds(judged: &[Judged]) -> Markup {
    if judged.is_empty() {
        return html! {};
    }
    html! {
        table {
            thead { tr { th { "Bound on" } th { "Value" } th { "Reason" } th { "Holds" } } }
            tbody {
                @for one in judged {
                    tr {
                        td { (one.bound.name) }
                        td { (one.bound.range()) }
                        td { (one.bound.reason) }
                        td {
                            @match one.holds {
                                Some(true) => "yes",
                                Some(false) => "NO",
                                None => (one.because.first().map_or("not judged", String::as_str)),
                            }
                        }
                    }
                }
            }
        }
    }
}

fn numbers(entry: &Entry) -> Markup {
    let all = &entry.reading.numbers;
    let table = html! {
        table {
            thead { tr { th { "Number" } th { "Value" } th { "Unit" } } }
            tbody {
                @for number in all {
                    tr {
                        td { (number.name) }
                        td.number { @match number.value { Some(v) => (shown(v)), None => "missing" } }
                        td { (number.unit) }
                    }
                }
            }
        }
    };
    match all.len() {
        0 => html! {},
        n if n <= OPEN => table,
        n => html! { details { summary { (n) " numbers" } (table) } },
    }
}

#[cfg(test)]
mod tests {
    use crate::bounds::Bounds;
    use crate::document::tests::{compare, records, report};

    #[test]
    fn the_document_has_every_row_and_nothing_that_leaves_it() {
        let bounds = Bounds::of_sources().unwrap();
        let report = report(&records(compare(1_500_000)), &bounds, false);
        let page = report.html();
        for row in crate::rows::all() {
            assert!(page.contains(&format!("id=\"{}\"", row.id)), "{}", row.id);
            assert!(
                page.contains(&format!("href=\"#{}\"", row.id)),
                "{}",
                row.id
            );
        }
        for word in ["http", "src=", "<script", "url(", "@import", "<link"] {
            assert!(!page.contains(word), "{word}");
        }
        assert!(page.contains("<svg class=\"fig\""));
        assert!(page.contains("prefers-color-scheme: dark") && page.contains("@media print"));
        // A link leads to a row of the page.
        assert_eq!(
            page.matches("href=").count(),
            page.matches("href=\"#").count()
        );
    }

    #[test]
    fn results_are_text_and_not_markup() {
        let mut document = compare(5_000_000);
        document["conclusions"][0] = "<script>1</script>".into();
        let bounds = Bounds::of_sources().unwrap();
        let page = report(&records(document), &bounds, false).html();
        assert!(page.contains("&lt;script&gt;1") && !page.contains("<script"));
    }
}
