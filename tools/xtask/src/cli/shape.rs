//! Options that describe a run, of all commands that make runs.

use std::path::PathBuf;

use clap::Args;

use dyad_launcher::config::{File, RunConfig, Settings, TestOptions, Work};
use dyad_launcher::error::Error;

/// Options that describe a run, and those that say where more of them are.
#[derive(Clone, Debug, Default, Args)]
pub(super) struct Shape {
    #[command(flatten)]
    pub(super) settings: Settings,
    /// Run these in-kernel tests instead of a program
    #[arg(long, value_name = "NAMES", value_delimiter = ',', conflicts_with_all = ["app", "class"], help_heading = "Program")]
    ktest: Vec<String>,
    /// Take settings from a TOML file (keys are the names of these options); the command line wins
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Run the program in the place of init, with all capabilities and without services
    #[arg(long, hide = true)]
    bare: bool,
    /// Run this program beside the program, with the same arguments; how it ends does not matter
    #[arg(long, value_name = "NAME", conflicts_with = "bare", hide = true)]
    beside: Option<String>,
}

impl Shape {
    /// What the configuration file says.
    pub(super) fn file(&self) -> Result<File, Error> {
        self.config
            .as_deref()
            .map_or_else(|| Ok(File::default()), File::read)
    }

    /// The settings of the command line, then those of the configuration file.
    pub(super) fn gather(&self) -> Result<Settings, Error> {
        Ok(self.settings.clone().or(self.file()?.settings))
    }

    /// The run that settings describe.
    pub(super) fn finish(&self, settings: &Settings) -> Result<RunConfig, Error> {
        let mut config = settings.resolve()?;
        config.test = TestOptions {
            bare: self.bare,
            beside: self.beside.clone(),
            ..TestOptions::from_env()?
        };
        if !self.ktest.is_empty() {
            config.work = Work::Ktest(self.ktest.clone());
        }
        Ok(config)
    }

    /// The run that the command line and the configuration file describe.
    pub(super) fn resolve(&self) -> Result<RunConfig, Error> {
        self.finish(&self.gather()?)
    }
}
