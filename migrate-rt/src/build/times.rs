//! What the stages of a build take.
//!
//! Processor time is the kernel's count for this process and for the tools that it has waited for
//! (`/proc/self/stat`), in its unit of a hundredth of a second. Work of two programs that one process builds at the
//! same time is in both.

use super::{Progress, Stage};
use crate::process::{processor_time, spent_by_tools};
use dyad_abi::Isa;
use std::cell::RefCell;
use std::path::Path;
use std::time::{Duration, Instant};

/// What one stage took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StageTime {
    /// The stage.
    pub stage: Stage,
    /// The ISA, of a part that one ISA took of the stage before it.
    pub isa: Option<Isa>,
    /// Time by the clock on the wall.
    pub wall: Duration,
    /// Time on processors, tools included.
    pub processor: Duration,
}

/// Processor time of this process and of the tools that it has waited for.
fn of_process() -> Duration {
    processor_time(Path::new("/proc/self"), 4)
}

/// What a part for one ISA has taken, from its thread and the tools that its thread has run.
pub(super) fn measure<T>(run: impl FnOnce() -> T) -> (T, Duration, Duration) {
    let start = Instant::now();
    let before = thread();
    let result = run();
    (result, start.elapsed(), thread().saturating_sub(before))
}

/// Processor time of this thread, and of the tools that this thread has run.
fn thread() -> Duration {
    processor_time(Path::new("/proc/thread-self"), 2) + spent_by_tools()
}

/// The stages of a build as they come.
pub(super) struct Clock<'a> {
    progress: &'a dyn Fn(Progress<'_>),
    state: RefCell<State>,
}

struct State {
    times: Vec<StageTime>,
    stage: Option<Stage>,
    start: Instant,
    processor: Duration,
}

impl<'a> Clock<'a> {
    pub(super) fn new(progress: &'a dyn Fn(Progress<'_>)) -> Clock<'a> {
        Clock {
            progress,
            state: RefCell::new(State {
                times: Vec::new(),
                stage: None,
                start: Instant::now(),
                processor: of_process(),
            }),
        }
    }

    /// Ends the stage before, and begins this one.
    pub(super) fn stage(&self, stage: Stage) {
        self.next(Some(stage));
        (self.progress)(Progress::Stage(stage));
    }

    /// Adds what each ISA took of the stage that runs, by ISA index.
    pub(super) fn parts(&self, parts: [(Duration, Duration); 2]) {
        let mut state = self.state.borrow_mut();
        let Some(stage) = state.stage else { return };
        self.end(&mut state, None);
        for (isa, (wall, processor)) in Isa::ALL.into_iter().zip(parts) {
            state.times.push(StageTime {
                stage,
                isa: Some(isa),
                wall,
                processor,
            });
        }
    }

    /// Ends the last stage.
    pub(super) fn finish(self) -> Vec<StageTime> {
        self.next(None);
        self.state.into_inner().times
    }

    fn next(&self, stage: Option<Stage>) {
        self.end(&mut self.state.borrow_mut(), stage);
    }

    fn end(&self, state: &mut State, next: Option<Stage>) {
        let (now, processor) = (Instant::now(), of_process());
        if let Some(stage) = state.stage {
            state.times.push(StageTime {
                stage,
                isa: None,
                wall: now - state.start,
                processor: processor.saturating_sub(state.processor),
            });
        }
        (state.stage, state.start, state.processor) = (next, now, processor);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_are_timed_in_order_and_parts_come_behind_their_stage() {
        let clock = Clock::new(&|_| ());
        clock.stage(Stage::FrontEnd);
        clock.stage(Stage::BackEnds);
        let unit = Duration::from_millis(1);
        clock.parts([(unit, unit), (2 * unit, unit)]);
        clock.stage(Stage::Align);
        let times = clock.finish();
        let shown: Vec<_> = times.iter().map(|t| (t.stage, t.isa)).collect();
        let expected = [
            (Stage::FrontEnd, None),
            (Stage::BackEnds, None),
            (Stage::BackEnds, Some(Isa::X86_64)),
            (Stage::BackEnds, Some(Isa::Aarch64)),
            (Stage::Align, None),
        ];
        assert_eq!(shown, expected);
    }

    #[test]
    fn tools_count_for_the_thread_that_runs_them() {
        let (_, _, idle) = measure(|| ());
        let mut command = std::process::Command::new("sh");
        command.args(["-c", "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done"]);
        let (result, wall, busy) = measure(|| crate::process::run_quiet(&mut command).is_ok());
        assert!(result);
        assert!(
            busy >= idle + Duration::from_millis(50),
            "{busy:?} of {wall:?}"
        );
    }
}
