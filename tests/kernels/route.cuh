// A header that two owners compile: what it defines must be the same for both.
#pragma once

#ifndef MOST_ROUTES
#define MOST_ROUTES 8
#endif

struct Route {
    int expert;
#ifdef WIDE_WEIGHTS
    double weight;
#else
    float weight;
#endif
};
