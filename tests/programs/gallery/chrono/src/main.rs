//! chrono: calendars, durations, formats and parsing, moving within a `TimeZone` and while text is written.
#![no_std]
#![no_main]

use core::fmt::{self, Write};

use chrono::format::{Item, StrftimeItems};
use chrono::{
    DateTime, Datelike, Days, Duration, FixedOffset, MappedLocalTime, Months, NaiveDate,
    NaiveDateTime, NaiveTime, Offset, SecondsFormat, SubsecRound, TimeDelta, TimeZone, Timelike,
    Utc, Weekday,
};
use gallery::*;

/// A time zone with summer time, which moves the thread when it is asked.
#[derive(Clone, Copy, Debug)]
struct Zone;

#[derive(Clone, Copy, Debug)]
struct Summer(bool);

impl Offset for Summer {
    fn fix(&self) -> FixedOffset {
        hop_each(2);
        FixedOffset::east_opt(if self.0 { 7200 } else { 3600 }).unwrap_or(Utc.fix())
    }
}

impl fmt::Display for Summer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hop();
        f.write_str(if self.0 { "CEST" } else { "CET" })
    }
}

impl TimeZone for Zone {
    type Offset = Summer;

    fn from_offset(_: &Summer) -> Zone {
        Zone
    }

    fn offset_from_local_date(&self, local: &NaiveDate) -> MappedLocalTime<Summer> {
        MappedLocalTime::Single(Summer((4..10).contains(&local.month())))
    }

    fn offset_from_local_datetime(&self, local: &NaiveDateTime) -> MappedLocalTime<Summer> {
        hop_each(2);
        self.offset_from_local_date(&local.date())
    }

    fn offset_from_utc_date(&self, utc: &NaiveDate) -> Summer {
        Summer((4..10).contains(&utc.month()))
    }

    fn offset_from_utc_datetime(&self, utc: &NaiveDateTime) -> Summer {
        hop_each(2);
        self.offset_from_utc_date(&utc.date())
    }
}

/// Text that moves the thread as it is written.
struct Slow(String);

impl Write for Slow {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        hop_each(4);
        self.0.push_str(s);
        Ok(())
    }
}

fn program() -> Result<()> {
    let mut seed = Seeded(18);
    for _ in 0..25 {
        let seconds = seed.below(8_000_000_000) as i64 - 4_000_000_000;
        let at = DateTime::<Utc>::from_timestamp(seconds, seed.below(1_000_000_000) as u32);
        let at = at.ok_or_else(|| Error::msg("no such time"))?;
        let there = at.with_timezone(&Zone);
        let mut text = Slow(String::new());
        write!(
            text,
            "{} | {}",
            there.format("%A %e %B %Y, %H:%M:%S%.3f %:z %Z, day %j, week %V"),
            at.to_rfc2822()
        )?;
        say!("{}", text.0);
        let again =
            DateTime::parse_from_rfc3339(&there.to_rfc3339_opts(SecondsFormat::Nanos, false))
                .map_err(failed)?;
        say!(
            "  {} {:?} {:?}",
            again == at,
            at.round_subsecs(2).nanosecond(),
            there.duration_round_up()
        );
    }
    let begin = NaiveDate::from_ymd_opt(2024, 1, 31).ok_or_else(|| Error::msg("no such day"))?;
    let days = begin.iter_weeks().take(20).map(|d| {
        hop_each(2);
        d.num_days_from_ce() + d.weekday().num_days_from_sunday() as i32
    });
    say!("{}", days.sum::<i32>());
    let months: Vec<String> = (0..14)
        .filter_map(|n| begin.checked_add_months(Months::new(n)))
        .map(|d| d.to_string())
        .collect();
    say!("{months:?}");
    say!(
        "{:?} {:?}",
        begin.checked_add_days(Days::new(29)),
        NaiveDate::from_isoywd_opt(2020, 53, Weekday::Sun)
    );
    say!(
        "{:?} {:?}",
        NaiveDate::from_weekday_of_month_opt(2025, 2, Weekday::Fri, 4),
        begin.years_since(NaiveDate::default())
    );
    let late = NaiveTime::from_hms_milli_opt(23, 59, 59, 1500)
        .ok_or_else(|| Error::msg("no such time"))?;
    say!(
        "{late} {:?} {:?}",
        late.overflowing_add_signed(TimeDelta::seconds(2)),
        Duration::weeks(3) - Duration::milliseconds(1)
    );
    for text in [
        "2001-02-29 10:00",
        "2000-02-29 10:00",
        "1999-12-31 24:00",
        "yesterday",
        "2000-02-29 10:00 or so",
    ] {
        let found = NaiveDateTime::parse_from_str(text, "%Y-%m-%d %H:%M");
        say!(
            "{text}: {}",
            found.map_or_else(|e| e.to_string(), |t| t.and_utc().timestamp().to_string())
        );
    }
    let items: Vec<Item<'_>> = StrftimeItems::new("%d.%m.%y at %I %p").collect();
    say!(
        "{} {items:?}",
        begin.and_time(late).format_with_items(items.iter())
    );
    Ok(())
}

/// Rounds up to the next hour.
trait RoundUp {
    fn duration_round_up(&self) -> Option<String>;
}

impl RoundUp for DateTime<Zone> {
    fn duration_round_up(&self) -> Option<String> {
        let next = self
            .with_minute(0)?
            .with_second(0)?
            .with_nanosecond(0)?
            .checked_add_signed(TimeDelta::hours(1))?;
        Some(next.naive_local().to_string())
    }
}

#[dyad::main]
fn main() -> Result<()> {
    play(program)
}
