//! NPB FT, hopping between ISAs with each phase or staying on one.
//!
//! The options are those of all benchmarks, see [`npb_drive`].
#![no_std]
#![no_main]
#![deny(unsafe_code)]

use dyad::prelude::*;
use npb::ft::{Ft, ITERATIONS};
use npb_drive::{Options, Title};

#[dyad::task]
async fn main(args: Args) -> Result<()> {
    let options = Options::read(&args)?;
    let places = options.settle().await?;
    let [nx, ny, nz] = options.class.cuboid();
    let size = format!("{nx} x {ny} x {nz}");
    let title = Title {
        name: "FT",
        size: &size,
        iterations: ITERATIONS,
    };
    places.announce(&title, options.class);
    let mut ft = Ft::new(options.class);
    let ran = places.drive(&mut ft).await?;
    for (i, sum) in ft.sums().iter().enumerate() {
        println!(
            " T = {:>3}  Checksum = {:.12} {:+.12}i",
            i + 1,
            sum.re,
            sum.im
        );
    }
    ran.conclude(&title, options.class, &ft)
}
