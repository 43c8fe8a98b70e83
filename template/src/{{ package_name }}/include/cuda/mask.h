// Which keys a query attends to. To mask otherwise, change this file and reference.py.

#pragma once

#ifdef __CUDACC__
#define MASK_FUNCTION __host__ __device__
#else
#define MASK_FUNCTION
#endif

namespace attention {

// The last query is aligned with the last key: query i has the position of key i + keys - queries. It attends to the
// keys from `left` positions before its own to `right` after. A causal mask has right = 0.
struct Mask {
  int queries, keys;
  int left, right;

  // The range of keys [begin, end) that a query attends to; empty if begin == end.
  MASK_FUNCTION int begin(int query) const {
    const int first = query + keys - queries - left;
    return first < 0 ? 0 : first < keys ? first : keys;
  }
  MASK_FUNCTION int end(int query) const {
    const int past = query + keys - queries + right + 1;
    const int limit = past < keys ? past : keys, first = begin(query);
    return limit > first ? limit : first;
  }
  MASK_FUNCTION bool allows(int query, int key) const {
    const int distance = key - (query + keys - queries);
    return query < queries && key < keys && distance <= right && distance >= -left;
  }
  // The first query that attends to this key or a later one, and one past the last query that attends to this key or an
  // earlier one.
  MASK_FUNCTION int first_query(int key) const {
    const int first = key - (keys - queries) - right;
    return first < 0 ? 0 : first < queries ? first : queries;
  }
  MASK_FUNCTION int end_query(int key) const {
    const int past = key - (keys - queries) + left + 1;
    return past < 0 ? 0 : past < queries ? past : queries;
  }
  // Whether the first and the last query attend to equally many keys, so that all tiles take about as long.
  MASK_FUNCTION bool is_even() const { return end(0) - begin(0) == end(queries - 1) - begin(queries - 1); }
  // The keys [begin, end) that every query of [first_query, end_query) attends to.
  MASK_FUNCTION int common_begin(int end_query) const { return end_query - 1 + keys - queries - left; }
  MASK_FUNCTION int common_end(int first_query) const {
    const int past = first_query + 1 + right + keys - queries;
    return past < keys ? past : keys;
  }
  // Whether every query of [first_query, end_query) attends to every key of [first_key, end_key).
  MASK_FUNCTION bool allows_all(int first_query, int end_query, int first_key, int end_key) const {
    return allows(first_query, end_key - 1) && allows(end_query - 1, first_key) && end_key <= keys;
  }
};

}  // namespace attention

#undef MASK_FUNCTION
