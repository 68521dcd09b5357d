//! tinybmp: pictures of 1, 8, 16, 24 and 32 bits are decoded, moving within `DrawTarget`.
#![no_std]
#![no_main]

use core::convert::Infallible;

use embedded_graphics::image::{GetPixel, Image};
use embedded_graphics::pixelcolor::Rgb888;
use embedded_graphics::prelude::*;
use gallery::*;
use tinybmp::{Bmp, RawBmp};

const SIZE: (u32, u32) = (37, 21);

/// A picture in memory; the thread moves as pixels are drawn.
struct Picture(Vec<Rgb888>);

impl OriginDimensions for Picture {
    fn size(&self) -> Size {
        Size::new(SIZE.0 + 3, SIZE.1 + 2)
    }
}

impl DrawTarget for Picture {
    type Color = Rgb888;
    type Error = Infallible;

    fn draw_iter<I: IntoIterator<Item = Pixel<Rgb888>>>(
        &mut self,
        pixels: I,
    ) -> Result<(), Infallible> {
        for Pixel(at, colour) in pixels {
            hop_each(60);
            if self.bounding_box().contains(at) {
                let n = at.y as u32 * self.size().width + at.x as u32;
                self.0[n as usize] = colour;
            }
        }
        Ok(())
    }
}

/// A bitmap file with seeded pixels; `flip` has its rows from the top.
fn file(seed: &mut Seeded, bits: u16, flip: bool) -> Vec<u8> {
    let colours = if bits <= 8 { 1u32 << bits } else { 0 };
    let row = (SIZE.0 * u32::from(bits)).div_ceil(32) * 4;
    let begin = 14 + 40 + colours * 4;
    let mut file = b"BM".to_vec();
    file.extend((begin + row * SIZE.1).to_le_bytes());
    file.extend([0; 4]);
    file.extend(begin.to_le_bytes());
    file.extend(40u32.to_le_bytes());
    file.extend(SIZE.0.to_le_bytes());
    let height = SIZE.1 as i32;
    file.extend(if flip { -height } else { height }.to_le_bytes());
    file.extend(1u16.to_le_bytes());
    file.extend(bits.to_le_bytes());
    for word in [0, row * SIZE.1, 2835, 2835, colours, 0] {
        file.extend(word.to_le_bytes());
    }
    file.extend((0..colours).flat_map(|_| (seed.below(1 << 24) as u32).to_le_bytes()));
    file.extend(seed.bytes((row * SIZE.1) as usize));
    file
}

fn sum(colours: impl Iterator<Item = Rgb888>) -> u64 {
    let bytes: Vec<u8> = colours.flat_map(|c| [c.r(), c.g(), c.b()]).collect();
    digest(&bytes)
}

fn program() -> Result<()> {
    let mut seed = Seeded(27);
    for bits in [1, 4, 8, 16, 24, 32] {
        for flip in [false, true] {
            let bytes = file(&mut seed, bits, flip);
            let raw = RawBmp::from_slice(&bytes).map_err(failed)?;
            let header = raw.header();
            say!(
                "{bits} bits, {:?} {:?} {:?}",
                header.image_size,
                header.row_order,
                header.compression_method
            );
            say!(
                "  {:x?}",
                raw.pixels().take(6).map(|p| p.color).collect::<Vec<_>>()
            );
            let bmp = Bmp::<Rgb888>::from_slice(&bytes).map_err(failed)?;
            let mut picture = Picture(Vec::new());
            picture.0.resize(
                (picture.size().width * picture.size().height) as usize,
                Rgb888::BLACK,
            );
            Image::new(&bmp, Point::new(2, 1)).draw(&mut picture)?;
            bmp.draw_sub_image(
                &mut picture,
                &embedded_graphics::primitives::Rectangle::new(Point::new(3, 4), Size::new(9, 8)),
            )?;
            let pixels = bmp.pixels().map(|Pixel(_, c)| {
                hop_each(60);
                c
            });
            say!(
                "  {:016x} {:016x} {:?}",
                sum(picture.0.into_iter()),
                sum(pixels),
                bmp.pixel(Point::new(5, 7))
            );
        }
    }
    let good = file(&mut seed, 24, false);
    for (at, value) in [(0, b'X'), (10, 0xff), (14, 3), (28, 5), (30, 9)] {
        hop();
        let mut bad = good.clone();
        bad[at] = value;
        say!(
            "byte {at}: {:?}",
            Bmp::<Rgb888>::from_slice(&bad).map(|b| b.size())
        );
    }
    say!(
        "{:?}",
        Bmp::<Rgb888>::from_slice(&good[..40]).map(|b| b.size())
    );
    Ok(())
}

#[dyad::main]
fn main() -> Result<()> {
    play(program)
}
