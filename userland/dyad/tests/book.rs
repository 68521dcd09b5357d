//! The book's page on services shows the examples of this crate as they are.

use std::fs;
use std::path::Path;

/// A Rust block of the page, by its first line.
fn block<'a>(page: &'a str, example: &str) -> Option<&'a str> {
    let start = format!("```rust\n// example: {example}\n");
    let (_, rest) = page.split_once(&start)?;
    rest.split_once("```").map(|(block, _)| block)
}

#[test]
fn the_page_on_services_shows_the_examples() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(here.join("../../book/src/service.md")).expect("the page");
    for example in ["tally.rs", "tally_client.rs"] {
        let source = fs::read_to_string(here.join("examples").join(example)).expect(example);
        assert_eq!(block(&page, example), Some(&*source), "{example}");
    }
}
