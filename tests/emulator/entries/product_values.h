// The tunables of a product's tile, as template parameters. The op's namespaces, with Defaults and Large, are in use.

#pragma once

template <
    int kRows,
    int kColumns,
    int kStages,
    int kConsumers,
    bool kPingPong,
    int kClusterRows,
    int kClusterColumns,
    int kClusterSplits = 1>
struct Values : Defaults<Large> {
  static constexpr int rows = kRows, columns = kColumns, stages = kStages, consumers = kConsumers, band = 2;
  static constexpr bool ping_pong = kPingPong;
  static constexpr int cluster_rows = kClusterRows, cluster_columns = kClusterColumns;
  static constexpr int cluster_splits = kClusterSplits;
};
