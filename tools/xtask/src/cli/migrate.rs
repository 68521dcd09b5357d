//! `cargo xtask migrate`.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use super::result;
use dyad_launcher::ask::{
    DEFAULT_WAIT, Failed, MAX_WAIT, Moved, Question, Reply, Run, Target, Wanted,
};
use dyad_launcher::config::Json;
use dyad_launcher::error::Error;

#[derive(Debug, Args)]
pub(super) struct MigrateArgs {
    /// Where to: the number of a node, or an ISA (a node that has it)
    #[arg(long, value_name = "NODE|ISA")]
    to: Target,
    /// Number of the thread in its program
    #[arg(long, value_name = "N", default_value_t = 0)]
    thread: u16,
    /// Name of the program [default: the one that was started]
    #[arg(long, value_name = "NAME")]
    program: Option<String>,
    /// Directory with the logs of the run [default: the one that runs]
    #[arg(long, value_name = "DIR")]
    run: Option<PathBuf>,
    /// Do not wait for a migration point: interpret the thread on its new node until it comes to one
    #[arg(long)]
    emulate: bool,
    /// How long to wait for it, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = DEFAULT_WAIT.as_millis() as u64,
          value_parser = clap::value_parser!(u64).range(..=MAX_WAIT.as_millis() as u64))]
    wait: u64,
    #[command(flatten)]
    json: Json,
}

pub(super) fn migrate(args: &MigrateArgs) -> Result<u8, Error> {
    result::open("migrate", &args.json)?;
    let run = Run::find(args.run.as_deref())?;
    let wanted = Wanted {
        program: args.program.clone(),
        thread: args.thread,
        to: args.to,
        wait_ms: args.wait,
    };
    let question = match args.emulate {
        true => Question::Emulate(wanted),
        false => Question::Migrate(wanted),
    };
    let answer = run.ask(&question);
    result::write(&report(&run, &answer))?;
    match answer {
        Ok(Reply::Moved(moved)) => {
            println!("{}", told(&run, &moved));
            Ok(0)
        }
        Ok(_) => Err(Error::Run(
            "the launcher has answered something else".into(),
        )),
        Err(Failed::Refused(why)) => Err(Error::Run(why.to_string())),
        Err(Failed::Unreachable(e)) => Err(e),
        Err(Failed::Interrupted(why)) => {
            if let Some(why) = why {
                eprintln!("{why}");
            }
            Err(Error::Interrupted)
        }
    }
}

fn told(run: &Run, moved: &Moved) -> String {
    let place = |node: usize| {
        let isa = run.nodes.get(node).map_or("", String::as_str);
        format!("node {node} {isa}")
    };
    let who = format!("thread {} of {:?}", moved.thread, moved.program);
    if moved.already {
        return format!("{who} is on {} already", place(moved.now));
    }
    let mut text = format!(
        "{who} went from {} to {} within {:.1} ms; {} migrations so far",
        place(moved.from),
        place(moved.to),
        moved.ms,
        moved.migrations
    );
    if let Some(i) = moved.interpreted {
        text.push_str(&format!(
            "; {} instructions of it were interpreted there",
            i.instructions
        ));
    }
    if moved.now != moved.to {
        text.push_str(&format!(
            "; it has gone on to {} by itself",
            place(moved.now)
        ));
    }
    text
}

fn report(run: &Run, answer: &Result<Reply, Failed>) -> serde_json::Value {
    let (moved, refused, error) = match answer {
        Ok(Reply::Moved(moved)) => (Some(moved), None, None),
        Ok(_) => (
            None,
            None,
            Some("the launcher has answered something else".into()),
        ),
        Err(Failed::Refused(why)) => (None, Some(why), Some(why.to_string())),
        Err(Failed::Unreachable(e)) => (None, None, Some(e.to_string())),
        Err(Failed::Interrupted(why)) => (None, why.as_ref(), Some("interrupted".into())),
    };
    json!({
        "schema": result::schema("migrate"),
        "run": run.dir,
        "ok": moved.is_some(),
        "failure": error,
        "moved": moved,
        "refused": refused,
        "error": error,
    })
}
