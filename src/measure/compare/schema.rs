//! What the documents of each measurement hold, as far as comparing them goes: which fields make a row
//! the same row in another document, and which figures it has.

/// One kind of document.
#[derive(Debug)]
pub(crate) struct Schema {
    pub(crate) name: &'static str,
    /// The fields that tell a row from the others.
    pub(super) keys: &'static [Key],
    pub(super) figures: &'static [Figure],
}

/// A field that identifies, and how a row's name says its value.
#[derive(Debug)]
pub(super) struct Key {
    pub(super) field: &'static str,
    pub(super) kind: Kind,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    /// A word. Null where the row has none, which the name then says with another.
    Word(Option<&'static str>),
    /// Bytes, behind what is said of them.
    Bytes(&'static str),
    /// So many of these.
    Count(&'static str),
}

/// A figure that rows have.
#[derive(Debug)]
pub(crate) struct Figure {
    /// As in the comparison's own document.
    pub(crate) name: &'static str,
    /// What people call it.
    pub(crate) title: &'static str,
    pub(crate) unit: Unit,
    pub(crate) better: Better,
    pub(super) source: Source,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    GigabytesPerSecond,
    Nanoseconds,
    NanosecondsPerAccess,
    MillisecondsPerGibibyte,
}

impl Unit {
    /// Whether its figures are what is left of two others.
    pub(super) fn is_difference(self) -> bool {
        self == Self::MillisecondsPerGibibyte
    }

    /// As in the comparison's own document.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::GigabytesPerSecond => "GB/s",
            Self::Nanoseconds => "ns",
            Self::NanosecondsPerAccess => "ns/access",
            Self::MillisecondsPerGibibyte => "ms/GiB",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Better {
    Higher,
    Lower,
}

impl Better {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Higher => "higher",
            Self::Lower => "lower",
        }
    }
}

/// Where a row has a figure.
#[derive(Debug)]
pub(super) enum Source {
    /// Every sample, in the array that this path leads to.
    Samples(&'static [&'static str]),
    /// A field of bytes over each sample of nanoseconds, in GB/s.
    Rate {
        bytes: &'static str,
        samples: &'static [&'static str],
    },
    /// A mean and its deviation alone, where samples are of something else.
    Mean {
        mean: &'static [&'static str],
        stdev: &'static [&'static str],
        runs: &'static str,
    },
}

/// The kind with this name.
pub(super) fn named(name: &str) -> Option<&'static Schema> {
    SCHEMAS.iter().find(|schema| schema.name == name)
}

const fn word(field: &'static str) -> Key {
    Key {
        field,
        kind: Kind::Word(None),
    }
}

const fn word_or(field: &'static str, none: &'static str) -> Key {
    Key {
        field,
        kind: Kind::Word(Some(none)),
    }
}

const fn bytes(field: &'static str, prefix: &'static str) -> Key {
    Key {
        field,
        kind: Kind::Bytes(prefix),
    }
}

const fn count(field: &'static str, noun: &'static str) -> Key {
    Key {
        field,
        kind: Kind::Count(noun),
    }
}

/// A figure with its mean and deviation, of `runs` samples.
macro_rules! of_runs {
    ($figure:literal) => {
        Source::Mean {
            mean: &[$figure, "mean"],
            stdev: &[$figure, "stdev"],
            runs: "runs",
        }
    };
}

// Fields, and what they mean, are those of the reports in `src/report/bench_*.rs`.
static SCHEMAS: &[Schema] = &[
    Schema {
        name: "prezero/bench-clear/1",
        keys: &[
            word("method"),
            bytes("chunk", ""),
            count("threads", "thread"),
        ],
        figures: &[Figure {
            name: "gbps",
            title: "clearing",
            unit: Unit::GigabytesPerSecond,
            better: Better::Higher,
            source: Source::Rate {
                bytes: "bytes",
                samples: &["samples_ns"],
            },
        }],
    },
    Schema {
        name: "prezero/bench-vm/1",
        keys: &[
            word("way"),
            word("peer"),
            bytes("bytes", ""),
            bytes("page_size", "on "),
            count("workers", "worker"),
        ],
        figures: &[
            Figure {
                name: "creation_ns",
                title: "creation time",
                unit: Unit::Nanoseconds,
                better: Better::Lower,
                source: Source::Samples(&["creation_ns", "samples"]),
            },
            Figure {
                name: "bw_gbps",
                title: "bandwidth",
                unit: Unit::GigabytesPerSecond,
                better: Better::Higher,
                source: Source::Mean {
                    mean: &["bw_gbps"],
                    stdev: &["bw_stdev"],
                    runs: "runs",
                },
            },
            Figure {
                name: "first_instruction_ns",
                title: "first guest instruction",
                unit: Unit::Nanoseconds,
                better: Better::Lower,
                source: Source::Samples(&["first_instruction_ns", "samples"]),
            },
        ],
    },
    Schema {
        name: "prezero/bench-mmap/1",
        keys: &[
            word("function"),
            bytes("bytes", ""),
            bytes("page_size", "on "),
            count("threads", "thread"),
        ],
        figures: &[Figure {
            name: "gbps",
            title: "mapping and populating",
            unit: Unit::GigabytesPerSecond,
            better: Better::Higher,
            // Its samples are of each thread.
            source: Source::Mean {
                mean: &["gbps_mean"],
                stdev: &["gbps_stdev"],
                runs: "loops",
            },
        }],
    },
    Schema {
        name: "prezero/bench-neighbour/1",
        keys: &[bytes("working_set", ""), word_or("method", "alone")],
        figures: &[
            Figure {
                name: "ns_per_access",
                title: "the neighbour's accesses",
                unit: Unit::NanosecondsPerAccess,
                better: Better::Lower,
                source: of_runs!("ns_per_access"),
            },
            Figure {
                name: "lost_ms_per_gib",
                title: "what the neighbour loses for each GiB cleared",
                unit: Unit::MillisecondsPerGibibyte,
                better: Better::Lower,
                source: of_runs!("lost_ms_per_gib"),
            },
            Figure {
                name: "background_gbps",
                title: "clearing beside it",
                unit: Unit::GigabytesPerSecond,
                better: Better::Higher,
                source: of_runs!("background_gbps"),
            },
        ],
    },
];

/// Of all kinds.
pub(super) fn names() -> Vec<&'static str> {
    SCHEMAS.iter().map(|schema| schema.name).collect()
}
