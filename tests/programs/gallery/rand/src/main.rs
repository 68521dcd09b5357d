//! rand: seeded distributions, shuffles and samples, moving within the generator that the crate asks.
#![no_std]
#![no_main]

use core::convert::Infallible;

use gallery::*;
use rand::distr::weighted::WeightedIndex;
use rand::distr::{Alphanumeric, Bernoulli, Distribution, SampleString, StandardUniform, Uniform};
use rand::rngs::ChaCha12Rng;
use rand::seq::{IndexedRandom, IteratorRandom, SliceRandom};
use rand::{Rng, RngExt, SeedableRng, TryRng};

/// A generator that moves the thread when it is asked.
struct Moving<R>(R);

impl<R: Rng> TryRng for Moving<R> {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        hop_each(4);
        Ok(self.0.next_u32())
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        hop_each(4);
        Ok(self.0.next_u64())
    }

    fn try_fill_bytes(&mut self, out: &mut [u8]) -> Result<(), Infallible> {
        hop();
        self.0.fill_bytes(out);
        Ok(())
    }
}

fn program() -> Result<()> {
    let mut rng = Moving(ChaCha12Rng::seed_from_u64(11));
    say!(
        "{:x?}",
        (0..4).map(|_| rng.random::<u64>()).collect::<Vec<_>>()
    );
    say!(
        "{:?} {:?}",
        rng.random::<f64>(),
        rng.random::<(bool, char, i16, f32)>()
    );
    let mut bytes = [0; 100];
    rng.fill_bytes(&mut bytes);
    say!("{:016x}", digest(&bytes));
    say!(
        "{:?}",
        (0..20)
            .map(|_| rng.random_range(-7..=7))
            .collect::<Vec<i32>>()
    );
    say!(
        "{:?}",
        (0..5)
            .map(|_| rng.random_range(0.0..3.5))
            .collect::<Vec<f64>>()
    );
    say!("{}", Alphanumeric.sample_string(&mut rng, 40));

    let mut deck: Vec<u32> = (0..52).collect();
    deck.shuffle(&mut rng);
    say!("{deck:?}");
    let (hand, rest) = deck.partial_shuffle(&mut rng, 5);
    say!("{hand:?} of {}", rest.len() + hand.len());
    say!("{:?}", (0..1000).sample(&mut rng, 8));
    say!(
        "{:?} {:?}",
        deck.choose(&mut rng),
        deck.sample(&mut rng, 3).collect::<Vec<_>>()
    );
    say!(
        "{:?}",
        deck.choose_weighted(&mut rng, |c| {
            hop_each(3);
            c * c
        })
        .map_err(failed)?
    );

    let weighted = WeightedIndex::new([1.0, 4.5, 0.5, 2.0]).map_err(failed)?;
    let mut counts = [0; 4];
    for n in weighted.sample_iter(&mut rng).take(200) {
        counts[n] += 1;
    }
    say!("{counts:?}");
    let coin = Bernoulli::new(0.3).map_err(failed)?;
    say!(
        "{}",
        coin.sample_iter(&mut rng).take(200).filter(|c| *c).count()
    );
    let die = Uniform::new_inclusive(1u8, 6).map_err(failed)?;
    say!(
        "{:?}",
        die.sample_iter(&mut rng).take(30).collect::<Vec<_>>()
    );
    say!("{:?}", Uniform::new(5, 5).map_err(|e| e.to_string()));

    // Points within a circle.
    let inside = (0..500).filter(|_| {
        let (x, y): (f64, f64) = StandardUniform.sample(&mut rng);
        x * x + y * y < 1.0
    });
    say!("{} of 500 are inside", inside.count());
    let mut child = ChaCha12Rng::from_rng(&mut rng);
    child.set_stream(3);
    say!("{:x} {:x}", child.next_u64(), child.get_word_pos());
    Ok(())
}

#[dyad::main]
fn main() -> Result<()> {
    play(program)
}
