//! time: calendars, durations, formats and parsing, moving while text is written and in closures.
#![no_std]
#![no_main]

use core::fmt::{self, Write};

use gallery::*;
use time::format_description::well_known::{Iso8601, Rfc2822, Rfc3339};
use time::macros::{date, datetime, format_description, offset, time};
use time::util::{days_in_month, is_leap_year};
use time::{Date, Duration, Month, OffsetDateTime, PrimitiveDateTime, Time, UtcOffset, Weekday};

/// Text that moves the thread as it is written.
struct Slow(String);

impl Write for Slow {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        hop_each(3);
        self.0.push_str(s);
        Ok(())
    }
}

fn program() -> Result<()> {
    let mut seed = Seeded(19);
    let long = format_description!(
        "[weekday] [day padding:space] [month repr:long] [year], [hour repr:12]:[minute] [period]"
    );
    let plain = format_description!("[year]-[month]-[day] [hour]:[minute]:[second]");
    let mut sum = Duration::ZERO;
    for _ in 0..25 {
        let seconds = seed.below(8_000_000_000) as i64 - 2_000_000_000;
        let at = OffsetDateTime::from_unix_timestamp(seconds)?
            + Duration::nanoseconds(seed.below(1_000_000_000) as i64);
        let at = at.to_offset(UtcOffset::from_hms(seed.below(20) as i8 - 10, 30, 0)?);
        let mut text = Slow(String::new());
        write!(
            text,
            "{at} {} {} {} {}",
            at.offset(),
            at.to_julian_day(),
            at.weekday(),
            at.iso_week()
        )?;
        say!("{}", text.0);
        let (date, time) = (at.date(), at.time().replace_nanosecond(0)?);
        let lines = [
            format!(
                "{date}T{:02}:{:02}:{:02}Z",
                time.hour(),
                time.minute(),
                time.second()
            ),
            format!(
                "{}, {} {} {} {:02}:{:02}:00 +0130",
                &at.weekday().to_string()[..3],
                at.day(),
                &at.month().to_string()[..3],
                at.year(),
                time.hour(),
                time.minute()
            ),
        ];
        hop();
        say!(
            "  {:?} {:?}",
            OffsetDateTime::parse(&lines[0], &Rfc3339),
            OffsetDateTime::parse(&lines[1], &Rfc2822)
        );
        say!(
            "  {:?}",
            OffsetDateTime::parse(&lines[0], &Iso8601::DEFAULT).map(|t| t.unix_timestamp())
        );
        sum += at - datetime!(2000-01-01 00:00 UTC);
    }
    say!(
        "{:?}",
        PrimitiveDateTime::parse("Thursday  9 July 2026, 03:04 PM", &long)
    );
    let mut text = Slow(String::new());
    write!(text, "{sum} {sum:.2} {:?}", sum.whole_weeks())?;
    say!("{} {:?}", text.0, sum.checked_div(7));

    let begin = date!(2024 - 02 - 28);
    let days = core::iter::successors(Some(begin), |d: &Date| {
        hop_each(2);
        d.next_day()
    });
    say!(
        "{:?}",
        days.take(200)
            .filter(|d| d.weekday() == Weekday::Friday && d.day() == 13)
            .collect::<Vec<_>>()
    );
    let mut dates: Vec<Date> = (0..40)
        .filter_map(|n| {
            let month = Month::try_from(1 + seed.below(12) as u8).ok()?;
            Date::from_calendar_date(1990 + n, month, 1 + seed.below(31) as u8).ok()
        })
        .collect();
    dates.sort_by(|a, b| {
        hop_each(2);
        (a.month() as u8, a.day()).cmp(&(b.month() as u8, b.day()))
    });
    say!(
        "{} {}",
        dates.len(),
        dates
            .iter()
            .map(|d| d.to_string())
            .collect::<Vec<_>>()
            .join(" ")
    );
    say!(
        "{:?} {:?}",
        dates[0].to_iso_week_date(),
        dates[1].next_occurrence(Weekday::Monday)
    );
    say!(
        "{:?} {}",
        time!(23:59:59.5) + Duration::seconds(1),
        time!(1:02) - time!(3:04)
    );
    say!(
        "{:?} {:?}",
        Time::from_hms(24, 0, 0).map_err(|e| e.to_string()),
        Date::from_ordinal_date(2023, 366).map_err(|e| e.to_string())
    );
    for n in [1600, 1900, 2000, 2023] {
        say!(
            "{n} {} {}",
            is_leap_year(n),
            days_in_month(Month::February, n)
        );
    }
    for wrong in [
        "2001-02-29 10:00:00",
        "2001-02-28 25:00:00",
        "2001-02-28",
        "today",
    ] {
        say!(
            "{wrong}: {:?}",
            PrimitiveDateTime::parse(wrong, &plain).map_err(|e| e.to_string())
        );
    }
    say!(
        "{:?} {:?}",
        datetime!(9999-12-31 23:59:59 UTC).checked_add(Duration::DAY),
        offset!(-4:30).as_hms()
    );
    Ok(())
}

#[dyad::main]
fn main() -> Result<()> {
    play(program)
}
