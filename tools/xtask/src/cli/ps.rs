//! `cargo xtask ps`.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use super::result;
use dyad_launcher::ask::{Failed, Question, Reply, Run, ThreadRow};
use dyad_launcher::config::Json;
use dyad_launcher::error::Error;

#[derive(Debug, Args)]
pub(super) struct PsArgs {
    /// Directory with the logs of the run [default: the one that runs]
    #[arg(long, value_name = "DIR")]
    run: Option<PathBuf>,
    /// Threads of init and the services, too
    #[arg(short, long)]
    all: bool,
    #[command(flatten)]
    json: Json,
}

pub(super) fn ps(args: &PsArgs) -> Result<u8, Error> {
    result::open("ps", &args.json)?;
    let run = Run::find(args.run.as_deref())?;
    let rows = match run.ask(&Question::Threads) {
        Ok(Reply::Threads(rows)) => rows,
        Ok(_) => {
            return Err(Error::Run(
                "the launcher has answered something else".into(),
            ));
        }
        Err(Failed::Refused(why)) => return Err(Error::Run(why.to_string())),
        Err(Failed::Unreachable(e)) => return Err(e),
        Err(Failed::Interrupted(_)) => return Err(Error::Interrupted),
    };
    result::write(&json!({
        "schema": result::schema("ps"), "ok": true, "failure": null, "run": run.dir, "threads": rows,
    }))?;
    let is_guest = |row: &&ThreadRow| run.programs.iter().any(|p| p.name == row.program);
    let shown: Vec<&ThreadRow> = rows.iter().filter(|r| args.all || is_guest(r)).collect();
    print!("{}", table(&shown));
    if shown.is_empty() {
        println!("no threads yet, or not any more");
    }
    Ok(0)
}

/// The rows for people, as long as there are any.
fn table(rows: &[&ThreadRow]) -> String {
    let mut text = String::new();
    if rows.is_empty() {
        return text;
    }
    let width = rows
        .iter()
        .map(|r| r.program.len())
        .max()
        .unwrap_or(0)
        .max(7);
    text.push_str(&format!(
        "{:width$}  thread  where           cpu  state     migrations\n",
        "program"
    ));
    for row in rows {
        let place = format!("node {} {}", row.node, row.isa);
        text.push_str(&format!(
            "{:width$}  {:6}  {place:<14}  {:3}  {:<8}  {:10}",
            row.program, row.thread, row.cpu, row.state, row.migrations
        ));
        if let Some(from) = row.crossed_from {
            text.push_str(&format!("  in a service, from node {from}"));
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_aligned() {
        let row = |program: &str, crossed_from| ThreadRow {
            program: program.into(),
            thread: 0,
            node: 1,
            isa: "aarch64".into(),
            cpu: 0,
            state: "running".into(),
            crossed_from,
            migrations: 12,
        };
        let (a, b) = (row("hop", None), row("npb", Some(0)));
        let text = table(&[&a, &b]);
        assert_eq!(
            text,
            "program  thread  where           cpu  state     migrations\n\
             hop           0  node 1 aarch64    0  running           12\n\
             npb           0  node 1 aarch64    0  running           12  in a service, from node 0\n"
        );
        assert_eq!(table(&[]), "");
    }
}
