//! NPB CG, hopping between ISAs with each phase or staying on one.
//!
//! The options are those of all benchmarks, see [`npb_drive`].
#![no_std]
#![no_main]
#![deny(unsafe_code)]

use dyad::prelude::*;
use npb::cg::{ITERATIONS, Run};
use npb_drive::{Options, Title};

#[dyad::task]
async fn main(args: Args) -> Result<()> {
    let options = Options::read(&args)?;
    let places = options.settle().await?;
    let size = format!("{}", options.class.rows());
    let title = Title {
        name: "CG",
        size: &size,
        iterations: ITERATIONS,
    };
    places.announce(&title, options.class);
    let mut cg = Run::new(options.class);
    println!(" Numbers in the matrix:  {}", cg.cg().entries());
    println!();
    let ran = places.drive(&mut cg).await?;
    println!("   iteration           ||r||                 zeta");
    for (i, step) in cg.steps().iter().enumerate() {
        println!(
            "    {:>5}       {:>20e}{:>20.13}",
            i + 1,
            step.residual,
            step.zeta
        );
    }
    ran.conclude(&title, options.class, &cg)
}
