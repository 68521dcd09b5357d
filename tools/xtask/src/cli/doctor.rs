//! `cargo xtask doctor`.

use clap::Args;

use super::result;
use dyad_launcher::config::Json;
use dyad_launcher::error::Error;
use dyad_launcher::setup;

#[derive(Debug, Args)]
pub(super) struct DoctorArgs {
    #[command(flatten)]
    json: Json,
}

pub(super) fn doctor(args: &DoctorArgs) -> Result<u8, Error> {
    result::open("doctor", &args.json)?;
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
    let failure = (bad != 0).then(|| format!("{bad} of {} requirements are not met", items.len()));
    match &failure {
        None => println!("everything that is needed is there"),
        Some(failure) => println!("{failure}"),
    }
    result::write(&serde_json::json!({
        "schema": result::schema("doctor"), "ok": bad == 0, "failure": failure, "requirements": items,
    }))?;
    Ok(u8::from(bad != 0))
}
