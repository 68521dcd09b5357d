//! What a program sees of the system and of itself, and that it is the same wherever it runs.

use alloc::string::String;

use dyad::prelude::task::*;
use dyad::{report, sys};

extern crate alloc;

/// Everything that must not change when a task goes to another node.
#[derive(PartialEq, Eq)]
struct View {
    /// Nodes, ISAs, CPUs, lives and pools.
    system: String,
    /// The info page: what the run was started with.
    info: String,
    args: Args,
}

impl View {
    fn new() -> Result<View> {
        let info = sys::info()?;
        Ok(View {
            system: format!("{:?}", dyad::system()?),
            info: format!("{info:?}"),
            args: Args::load()?,
        })
    }
}

/// Goes to every node and back, looks, and compares. Time goes on, and nothing else changes.
pub async fn same_everywhere(nodes: &[NodeId]) -> Result<()> {
    let home = dyad::node();
    let (first, mut then) = (View::new()?, sys::now()?);
    for &node in nodes.iter().chain([&home]) {
        dyad::task::migrate_to(node).await?;
        let (here, now) = (View::new()?, sys::now()?);
        let same = [
            ("system", here.system == first.system),
            ("info", here.info == first.info),
            ("arguments", here.args == first.args),
            ("time", now > then && dyad::node() == node),
        ];
        let wrong: Vec<_> = same.iter().filter(|(_, ok)| !ok).map(|(n, _)| *n).collect();
        report::check(
            &format!("view.same.{node}"),
            wrong.is_empty(),
            format_args!(
                "{} bytes; different: {wrong:?}",
                here.system.len() + here.info.len()
            ),
        );
        then = now;
    }
    Ok(())
}
