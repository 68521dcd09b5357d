//! embedded-graphics: shapes and text on a picture in memory, moving within `DrawTarget`, `PixelColor` and iterators.
#![no_std]
#![no_main]

use core::convert::Infallible;

use embedded_graphics::mono_font::MonoTextStyleBuilder;
use embedded_graphics::mono_font::ascii::{FONT_6X10, FONT_9X15_BOLD};
use embedded_graphics::pixelcolor::{Gray4, GrayColor, Rgb565};
use embedded_graphics::prelude::*;
use embedded_graphics::primitives::{
    Arc, Circle, CornerRadii, Ellipse, Line, Polyline, PrimitiveStyle, PrimitiveStyleBuilder,
    Rectangle, RoundedRectangle, Sector, StrokeAlignment, Triangle,
};
use embedded_graphics::text::{Alignment, Baseline, Text, TextStyleBuilder};
use gallery::*;

const WIDTH: usize = 96;
const HEIGHT: usize = 64;

/// A picture in memory; the thread moves as pixels are drawn.
struct Picture(Vec<u8>);

impl OriginDimensions for Picture {
    fn size(&self) -> Size {
        Size::new(WIDTH as u32, HEIGHT as u32)
    }
}

impl DrawTarget for Picture {
    type Color = Gray4;
    type Error = Infallible;

    fn draw_iter<I: IntoIterator<Item = Pixel<Gray4>>>(
        &mut self,
        pixels: I,
    ) -> Result<(), Infallible> {
        for Pixel(at, colour) in pixels {
            hop_each(97);
            if self.bounding_box().contains(at) {
                self.0[at.y as usize * WIDTH + at.x as usize] = colour.luma();
            }
        }
        Ok(())
    }
}

impl Picture {
    fn new() -> Picture {
        Picture(vec![0; WIDTH * HEIGHT])
    }

    fn say(&self, name: &str) {
        let lit = self.0.iter().filter(|p| **p > 0).count();
        say!("{name}: {lit} pixels, {:016x}", digest(&self.0));
    }
}

fn style(seed: &mut Seeded) -> PrimitiveStyle<Gray4> {
    let alignment = [
        StrokeAlignment::Inside,
        StrokeAlignment::Center,
        StrokeAlignment::Outside,
    ][seed.below(3) as usize];
    let colour = |n: u64| Gray4::new(1 + n as u8);
    PrimitiveStyleBuilder::new()
        .stroke_width(seed.below(5) as u32)
        .stroke_alignment(alignment)
        .stroke_color(colour(seed.below(15)))
        .fill_color(colour(seed.below(15)))
        .build()
}

fn program() -> Result<()> {
    let mut seed = Seeded(26);
    for n in 0..10 {
        let mut picture = Picture::new();
        let at = |seed: &mut Seeded| Point::new(seed.below(90) as i32, seed.below(60) as i32);
        let (a, b, c) = (at(&mut seed), at(&mut seed), at(&mut seed));
        let size = Size::new(5 + seed.below(50) as u32, 5 + seed.below(40) as u32);
        let (start, sweep) = (
            Angle::from_degrees(n as f32 * 31.0),
            Angle::from_degrees(200.5),
        );
        Line::new(a, b)
            .into_styled(style(&mut seed))
            .draw(&mut picture)?;
        picture.say("line");
        Circle::new(a, size.width)
            .into_styled(style(&mut seed))
            .draw(&mut picture)?;
        Ellipse::new(b, size)
            .into_styled(style(&mut seed))
            .draw(&mut picture)?;
        picture.say("curves");
        Triangle::new(a, b, c)
            .into_styled(style(&mut seed))
            .draw(&mut picture)?;
        Rectangle::with_corners(b, c)
            .into_styled(style(&mut seed))
            .draw(&mut picture)?;
        let corners = CornerRadii::new(Size::new(6, 4));
        RoundedRectangle::new(Rectangle::new(c, size), corners)
            .into_styled(style(&mut seed))
            .draw(&mut picture)?;
        picture.say("corners");
        Arc::new(c, size.height, start, sweep)
            .into_styled(style(&mut seed))
            .draw(&mut picture)?;
        Sector::new(a, size.height, start, sweep)
            .into_styled(style(&mut seed))
            .draw(&mut picture)?;
        Polyline::new(&[a, c, b, a + Point::new(9, 9)])
            .into_styled(style(&mut seed))
            .draw(&mut picture)?;
        picture.say("angles");
    }
    let mut picture = Picture::new();
    let white = MonoTextStyleBuilder::new()
        .font(&FONT_6X10)
        .text_color(Gray4::WHITE)
        .underline()
        .build();
    let bold = MonoTextStyleBuilder::new()
        .font(&FONT_9X15_BOLD)
        .text_color(Gray4::new(9))
        .background_color(Gray4::new(2))
        .build();
    let centred = TextStyleBuilder::new()
        .alignment(Alignment::Center)
        .baseline(Baseline::Middle)
        .build();
    let next = Text::new("one program,\n", Point::new(2, 10), white).draw(&mut picture)?;
    Text::new("two ISAs", next, bold).draw(&mut picture)?;
    Text::with_text_style("Dyad", Point::new(48, 48), bold, centred).draw(&mut picture)?;
    let mut clipped = picture.clipped(&Rectangle::new(Point::new(50, 30), Size::new(40, 30)));
    Circle::new(Point::new(40, 20), 40)
        .into_styled(PrimitiveStyle::with_stroke(Gray4::new(5), 2))
        .draw(&mut clipped)?;
    picture.say("text");
    for row in picture.0.chunks(WIDTH).step_by(2) {
        say!(
            "{}",
            row.iter()
                .map(|p| [' ', '.', ':', '+', '*', '#'][*p as usize / 3])
                .collect::<String>()
        );
    }
    let points = Circle::new(Point::zero(), 30).points().map(|p| {
        hop_each(40);
        Rgb565::new((p.x % 32) as u8, (p.y % 64) as u8, 3).into_storage()
    });
    say!("{}", points.map(u64::from).sum::<u64>());
    Ok(())
}

#[dyad::main]
fn main() -> Result<()> {
    play(program)
}
