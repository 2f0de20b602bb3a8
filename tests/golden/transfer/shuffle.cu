{  // x to y: 4 shuffles
    [[maybe_unused]] const std::uint32_t lane = thread % 32;
    std::uint32_t sent[] = {x[0], x[1], x[2], x[3]};
    {
        const bool here = pipelink::in_lanes(0xaaaaaaaau, lane);
        pipelink::swap_if(here, sent[0], sent[1]);
        pipelink::swap_if(here, sent[2], sent[3]);
    }
    {
        const bool here = pipelink::in_lanes(0xccccccccu, lane);
        pipelink::swap_if(here, sent[0], sent[2]);
        pipelink::swap_if(here, sent[1], sent[3]);
    }
    const std::uint32_t from0 = lane % 8 * 4 + lane / 8;
    std::uint32_t got[4];
    got[0] = pipelink::from_lane(sent[0], from0);
    got[1] = pipelink::from_lane(sent[1], from0 ^ 1);
    got[2] = pipelink::from_lane(sent[2], from0 ^ 2);
    got[3] = pipelink::from_lane(sent[3], from0 ^ 3);
    {
        const bool here = pipelink::in_lanes(0xff00ff00u, lane);
        pipelink::swap_if(here, got[0], got[1]);
        pipelink::swap_if(here, got[2], got[3]);
    }
    {
        const bool here = pipelink::in_lanes(0xffff0000u, lane);
        pipelink::swap_if(here, got[0], got[2]);
        pipelink::swap_if(here, got[1], got[3]);
    }
    y[0] = got[0];
    y[1] = got[1];
    y[2] = got[2];
    y[3] = got[3];
}
