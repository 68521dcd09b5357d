//! The measurements of earlier systems, without what they measure: each calls a hook where the
//! thread moves, sleeps or wakes another, and whoever drives it says what that is.
//!
//! | module | measurement | hook |
//! |---|---|---|
//! | [`chase`] | a list of `n` lines is followed between two migrations | to the data, and back |
//! | [`pingpong`] | two threads lock and unlock in turn | wait, wake |
//! | [`pages`] | some lines of each page are touched; 10 MB in order | who touches |
//! | [`depth`] | a stack of `n` frames of some kind | at the bottom |

pub mod chase;
pub mod depth;
pub mod pages;
pub mod pingpong;
