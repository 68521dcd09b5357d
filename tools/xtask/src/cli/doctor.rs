//! `cargo xtask doctor`.

use clap::Args;

use super::run::write_json;
use crate::error::Error;
use crate::setup;

#[derive(Debug, Args)]
pub(super) struct DoctorArgs {
    /// Write the findings to this file
    #[arg(long, value_name = "FILE")]
    json: Option<String>,
}

pub(super) fn doctor(args: &DoctorArgs) -> Result<u8, Error> {
    let items = setup::check();
    for item in &items {
        let mark = match (item.ok, item.optional) {
            (true, _) => "ok      ",
            (false, true) => "optional",
            (false, false) => "MISSING ",
        };
        println!("{mark}  {}: {}", item.name, item.state);
        if let Some(remedy) = &item.remedy {
            println!(
                "          remedy: {}",
                remedy.trim_end().replace('\n', "\n          ")
            );
        }
    }
    let bad = items.iter().filter(|i| !i.ok && !i.optional).count();
    if bad == 0 {
        println!("everything that is needed is there");
    } else {
        println!("{bad} of {} requirements are not met", items.len());
    }
    if let Some(file) = &args.json {
        let json = serde_json::json!({
            "schema": "dyad.doctor/1", "ok": bad == 0, "requirements": items,
        });
        write_json(file, &json)?;
    }
    Ok(u8::from(bad != 0))
}
