//! The verifier of machine code, on code made for it: what has to be rejected, and why, and what has to
//! be accepted.
//!
//! Fixtures are assembly, so that each is exactly the code it is about. All of a table are functions
//! of one program, which is verified once per fixture.

mod a64_frames;
mod a64_values;
mod accepted;
mod corpus;
mod fixture;
mod handed;
mod oracle;
mod x86_frames;
mod x86_values;
