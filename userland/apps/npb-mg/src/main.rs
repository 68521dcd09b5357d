//! NPB MG, hopping between ISAs with each phase or staying on one.
//!
//! The options are those of all benchmarks, see [`npb_drive`].
#![no_std]
#![no_main]
#![deny(unsafe_code)]

use dyad::prelude::*;
use npb::mg::{ITERATIONS, Mg};
use npb_drive::{Options, Title};

#[dyad::task]
async fn main(args: Args) -> Result<()> {
    let options = Options::read(&args)?;
    let places = options.settle().await?;
    let n = options.class.points();
    let size = format!("{n} x {n} x {n}");
    let title = Title {
        name: "MG",
        size: &size,
        iterations: ITERATIONS,
    };
    places.announce(&title, options.class);
    let mut mg = Mg::new(options.class);
    let ran = places.drive(&mut mg).await?;
    if let Some(norm) = mg.norm() {
        println!(
            " L2 norm = {norm:e}, official {:e}",
            options.class.residual_norm()
        );
    }
    ran.conclude(&title, options.class, &mg)
}
