//! Real git, real repositories, many threads and clones; time is injected.

mod actors;
mod acts;
mod collect;
mod defects;
mod issues;
mod loose;
mod races;
mod shapes;
mod support;
mod trouble;
