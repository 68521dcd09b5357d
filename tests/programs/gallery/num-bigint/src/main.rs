//! num-bigint: factorials, powers, roots and primes, moving within iterators and closures.
#![no_std]
#![no_main]

use gallery::*;
use num_bigint::{BigInt, BigUint, Sign};
use num_integer::Integer;
use num_traits::{Num, One, Pow, Signed, Zero};

/// Numbers from 1 to `n`; every 16th moves the thread.
fn up_to(n: u32) -> impl Iterator<Item = BigUint> {
    (1..=n).map(|n| {
        hop_each(8);
        BigUint::from(n)
    })
}

/// Whether a number is a probable prime: Miller-Rabin with small bases.
fn is_prime(n: &BigUint) -> bool {
    let one = BigUint::one();
    let less = n - &one;
    let twos = less.trailing_zeros().unwrap_or(0);
    let odd = &less >> twos;
    [2u32, 3, 5, 7, 11, 13].iter().all(|base| {
        hop();
        let mut x = BigUint::from(*base).modpow(&odd, n);
        if x == one || x == less {
            return true;
        }
        (1..twos).any(|_| {
            x = (&x * &x) % n;
            x == less
        })
    })
}

fn random(seed: &mut Seeded, words: usize) -> BigUint {
    BigUint::from_bytes_le(&seed.bytes(words * 8))
}

fn program() -> Result<()> {
    let mut seed = Seeded(8);
    let factorial: BigUint = up_to(300).product();
    say!("300! = {factorial}");
    let sum: BigUint = up_to(500).map(|n| Pow::pow(n, 20u32)).sum();
    say!("sum of n^20: {sum}, root {}", sum.nth_root(20));
    for words in [1, 3, 10, 40, 150] {
        let (a, b) = (random(&mut seed, words), random(&mut seed, words));
        hop();
        let product = &a * &b;
        let (q, r) = product.div_rem(&(&a + 1u32));
        let back = &q * (&a + 1u32) + &r == product;
        say!(
            "{words} words: {:016x} {back}, gcd {}",
            digest(&product.to_bytes_be()),
            a.gcd(&(&b * 6u32)) % 1_000_000u32
        );
        say!(
            "  in base 36: {:016x}",
            digest(product.to_str_radix(36).as_bytes())
        );
        let text = format!("{product:x}");
        say!(
            "  again: {}, root {:016x}",
            BigUint::from_str_radix(&text, 16).is_ok_and(|p| p == product),
            digest(&product.sqrt().to_bytes_le())
        );
    }
    let mersenne: Vec<u32> = (2..130u32)
        .filter(|p| is_prime(&((BigUint::one() << *p) - 1u32)))
        .collect();
    say!("exponents of primes: {mersenne:?}");
    let (a, m) = (random(&mut seed, 8), (BigUint::one() << 521u32) - 1u32);
    let inverse = a.modinv(&m).ok_or_else(|| Error::msg("no inverse"))?;
    say!(
        "inverse {:016x} {}",
        digest(&inverse.to_bytes_le()),
        ((a * inverse) % m).is_one()
    );
    for _ in 0..12 {
        let negative = BigInt::from_biguint(Sign::Minus, random(&mut seed, 4));
        let by = BigInt::from(seed.below(1 << 40)) - (1i64 << 39);
        hop();
        let (q, r) = negative.div_mod_floor(&by);
        say!(
            "{q} {r} {} {}",
            (&negative >> 70u32) ^ &by,
            negative.abs() < by.abs() || negative.is_zero()
        );
    }
    Ok(())
}

#[dyad::main]
fn main() -> Result<()> {
    play(program)
}
