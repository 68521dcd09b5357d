//! Code that the services share, and the parts of services that can be tested without a machine.
//!
//! | module | for | what |
//! |---|---|---|
//! | [`first`] | programs in the place of init | what such a program has, and a store to make components of |
//! | [`frames`] | init | which frames belong to whom: carving, taking, sweeping, counting |
//! | [`asked`] | init | what its process service is asked, and by whom |
//! | [`halting`] | init | how the threads of a program end, and how long that is waited for |
//! | [`image`] | init | the regions and pages that a bundle becomes |
//! | [`mappings`] | pager | ranges and regions of a client, in agreement whenever a thread ends |
//! | [`pages`] | pager | what it does in an invocation
//! | [`ranges`] | pager | addresses of a client: which are free, which are mapped |
//! | [`ending`] | init | how a program has ended |
//! | [`thread_word`] | init | the state of a thread, and which invocation says how a program has ended |
//! | [`rounds`] | peer | which threads a death takes |
//! | [`slots`] | peer | what threads of a process ask its actor |
//! | [`quota`] | init | how many requests to move threads a program may have, and for when |
//! | [`budget`] | console | what a client may cost in the long run |
//! | [`lines`] | console | bytes of many clients to whole lines |
//! | [`keeper`], [`robust`] | all | locks whose holder can end while it holds them, and state that is whole then |
//! | [`takedown`] | init, tests | taking address spaces and endpoints down |
//! | [`text`] | all | messages without a heap |
//! | [`shared`] | all | memory that another program writes at the same time |
//! | [`rt`] | all | how a service starts, is invoked, and says that it cannot go on |
#![no_std]
#![deny(unsafe_code)]

pub mod asked;
pub mod budget;
pub mod ending;
pub mod first;
pub mod frames;
pub mod halting;
pub mod image;
pub mod keeper;
pub mod lines;
pub mod mappings;
pub mod pages;
pub mod pool;
pub mod quota;
pub mod ranges;
pub mod robust;
pub mod rounds;
pub mod rt;
pub mod shared;
pub mod slots;
pub mod takedown;
pub mod text;
pub mod thread_word;
