//! Which thread a CPU runs, and what a CPU holds of it.
//!
//! | module | concern |
//! |---|---|
//! | [`dispatch`] | dispatching, blocking, waking, preemption |
//! | [`fp`] | floating-point registers, loaded when they are used |
//! | [`quiet`] | quiescence of this CPU and its node |
//! | [`registers`] | all registers of a thread |
//! | [`timer`] | the end of a slice, and housekeeping |

pub mod dispatch;
pub mod fp;
pub mod quiet;
pub mod registers;
pub mod timer;
