//! The bundle: one file holding one program for every ISA.
