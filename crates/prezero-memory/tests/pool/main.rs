//! A pool of recycled hugepages: what the next guest gets is zero, and nobody gets what somebody has.

mod children;
mod create;
mod exchange_only;
mod exclusive;
mod fixture;
mod hammer;
mod killed;
mod on_demand;
mod pin;
mod recycle;
mod release;
mod scrub;
mod torn;
mod trust;
